/*
  The tables of the market example. Apply it to a database that pgfresh has migrated, before the data types are registered.
  It may be applied again at any time.
*/
-- Opening hours. Times are local to the exchange and become instants day by day, which respects daylight saving time.
create table if not exists exchanges (
  exchange text primary key,
  name text not null,
  zone text not null
);

-- Two rows per day if there is a lunch break. 24:00 is the end of a day.
create table if not exists exchange_hours (
  exchange text not null references exchanges,
  weekday int not null check (weekday between 1 and 7),
  opens time not null,
  closes time not null check (closes > opens),
  primary key (exchange, weekday, opens)
);

create table if not exists exchange_holidays (
  exchange text not null references exchanges,
  day date not null,
  name text not null,
  -- When it closes on a half day; null means that it does not open.
  closes time,
  primary key (exchange, day)
);

-- All keys of the example. Inactive ones are not refreshed.
create table if not exists symbols (
  symbol text primary key,
  exchange text not null references exchanges,
  active boolean not null default true
);

-- The mirrors of the provider. fetched_at is written by pgfresh, source_updated_at is the provider's own time.
create table if not exists profiles (
  symbol text primary key references symbols,
  company_name text not null,
  exchange text not null,
  currency text not null,
  country text not null,
  sector text not null,
  industry text not null,
  ceo text,
  employees int not null,
  ipo_date date not null,
  website text,
  description text not null,
  is_actively_trading boolean not null,
  source_updated_at timestamptz not null,
  fetched_at timestamptz not null
);

create table if not exists quotes (
  symbol text primary key references profiles,
  price numeric not null,
  change numeric not null,
  change_percent numeric not null,
  open numeric not null,
  high numeric not null,
  low numeric not null,
  previous_close numeric not null,
  volume bigint not null,
  average_volume bigint not null,
  market_cap numeric not null,
  currency text not null,
  source_updated_at timestamptz not null,
  fetched_at timestamptz not null
);

create table if not exists financial_statements (
  symbol text not null references profiles,
  fiscal_year int not null,
  period text not null,
  period_end date not null,
  filed_at timestamptz not null,
  currency text not null,
  revenue numeric not null,
  cost_of_revenue numeric not null,
  gross_profit numeric not null,
  research_and_development numeric,
  operating_income numeric not null,
  net_income numeric not null,
  eps numeric not null,
  shares bigint not null,
  total_assets numeric not null,
  total_liabilities numeric not null,
  total_equity numeric not null,
  cash numeric not null,
  total_debt numeric not null,
  operating_cash_flow numeric not null,
  capital_expenditure numeric not null,
  free_cash_flow numeric not null,
  source_updated_at timestamptz not null,
  fetched_at timestamptz not null,
  primary key (symbol, fiscal_year, period)
);

create table if not exists ratios_ttm (
  symbol text primary key references profiles,
  pe_ratio numeric,
  pb_ratio numeric not null,
  ps_ratio numeric not null,
  debt_to_equity numeric not null,
  current_ratio numeric not null,
  gross_margin numeric not null,
  operating_margin numeric not null,
  net_margin numeric not null,
  return_on_equity numeric not null,
  return_on_assets numeric not null,
  dividend_yield numeric,
  source_updated_at timestamptz not null,
  fetched_at timestamptz not null
);

create table if not exists dividends (
  symbol text not null references profiles,
  ex_date date not null,
  record_date date not null,
  payment_date date not null,
  declared_date date not null,
  amount numeric not null,
  currency text not null,
  source_updated_at timestamptz not null,
  fetched_at timestamptz not null,
  primary key (symbol, ex_date)
);

-- Derived from the quotes: shares that have left their opening price. Both directions may occur on one day.
create table if not exists opening_signals (
  symbol text not null references profiles,
  day date not null,
  signal text not null check (signal in ('rising', 'falling')),
  open numeric not null,
  price numeric not null,
  move_percent numeric not null,
  updated_at timestamptz not null,
  first_seen_at timestamptz not null,
  primary key (symbol, day, signal)
);
create or replace trigger preserve_first_seen_at before insert or update on opening_signals
  for each row execute function pgfresh.preserve_first_seen_at();

-- Price history for charts: one point per fetched quote, kept for a day.
create table if not exists price_points (
  symbol text not null,
  at timestamptz not null,
  price numeric not null,
  primary key (symbol, at)
);

create or replace function note_price() returns trigger
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
begin
  insert into price_points (symbol, at, price) values (new.symbol, new.source_updated_at, new.price) on conflict do nothing;
  return null;
end
$$;
comment on function note_price() is 'Keeps the price of a quote as a point of its chart.';
create or replace trigger note_price after insert or update on quotes for each row execute function note_price();

-- The sessions of an exchange from one of its days to another, as instants.
create or replace function exchange_sessions(p_exchange text, p_from date, p_to date) returns table (opens_at timestamptz, closes_at timestamptz)
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
  select (d.day + h.opens) at time zone e.zone, (d.day + least(h.closes, o.closes)) at time zone e.zone
  from exchanges as e
  -- With no zone, because a day of a time zone may have 23 hours.
  cross join lateral generate_series(p_from::timestamp, p_to::timestamp, interval '1 day') as d(day)
  join exchange_hours as h on h.exchange = e.exchange and h.weekday = extract(isodow from d.day)
  left join exchange_holidays as o on o.exchange = e.exchange and o.day = d.day::date
  where e.exchange = p_exchange and (o.day is null or o.closes > h.opens)
$$;
comment on function exchange_sessions(text, date, date) is 'When an exchange is open between two of its days.';

-- The gate of quotes: what is there is refreshed only while it is traded. A symbol without an exchange holds nothing back.
create or replace function is_exchange_open(key text, data_type text) returns boolean
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
  select coalesce((
    select exists (
      select from exchange_sessions(e.exchange, (t.now at time zone e.zone)::date, (t.now at time zone e.zone)::date) as x
      where t.now >= x.opens_at and t.now < x.closes_at
    )
    from symbols as s
    join exchanges as e on e.exchange = s.exchange
    cross join (select pgfresh.clock() as now) as t
    where s.symbol = is_exchange_open.key
  ), true)
$$;
comment on function is_exchange_open(text, text) is 'Whether the exchange of a symbol is open now.';

-- Two weeks are more than any exchange is ever closed.
create or replace function exchange_opens_at(key text, data_type text) returns timestamptz
language sql stable
set search_path = pg_catalog, public, pg_temp
as $$
  select (
    select min(greatest(x.opens_at, t.now))
    from exchange_sessions(e.exchange, (t.now at time zone e.zone)::date, (t.now at time zone e.zone)::date + 14) as x
    where x.closes_at > t.now
  )
  from symbols as s
  join exchanges as e on e.exchange = s.exchange
  cross join (select pgfresh.clock() as now) as t
  where s.symbol = exchange_opens_at.key
$$;
comment on function exchange_opens_at(text, text) is 'When the exchange of a symbol opens next; now, if it is open.';

-- Of the quotes of each symbol's own trading day. The token is that of the lease refresh_opening_signals: without it, nothing is kept.
create or replace function refresh_opening_signals(p_token bigint) returns int
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
  v_count int;
begin
  insert into opening_signals as o (symbol, day, signal, open, price, move_percent, updated_at)
  select q.symbol, (q.source_updated_at at time zone e.zone)::date, case when q.price > q.open then 'rising' else 'falling' end,
    q.open, q.price, round(100 * (q.price / q.open - 1), 2), pgfresh.clock()
  from quotes as q join symbols as s using (symbol) join exchanges as e on e.exchange = s.exchange
  where abs(q.price / q.open - 1) >= 0.01 and q.source_updated_at > pgfresh.clock() - interval '1 day'
  on conflict (symbol, day, signal) do update
    set open = excluded.open, price = excluded.price, move_percent = excluded.move_percent, updated_at = excluded.updated_at
    where (o.open, o.price) is distinct from (excluded.open, excluded.price);
  get diagnostics v_count = row_count;
  perform pgfresh.fence_refresh_lock('refresh_opening_signals', p_token);
  return v_count;
end
$$;
comment on function refresh_opening_signals(bigint) is 'Writes which shares are at least 1 % away from where they opened; returns how many rows are new or have changed.';

-- Deletes mirrors of inactive symbols, old price points and signals, and holidays of the years before last.
create or replace function run_daily_cleanup(p_params jsonb) returns jsonb
language plpgsql
set search_path = pg_catalog, public, pg_temp
as $$
declare
  v_before timestamptz := pgfresh.clock() - make_interval(days => coalesce((p_params ->> 'days')::int, 30));
  v_gone text[] := array(select p.symbol from profiles as p join symbols as s using (symbol) where not s.active and p.fetched_at < v_before);
  v_mirrors int;
  v_signals int;
  v_holidays int;
begin
  delete from price_points where at < pgfresh.clock() - interval '1 day';
  delete from opening_signals where symbol = any (v_gone) or updated_at < v_before;
  get diagnostics v_signals = row_count;
  delete from quotes where symbol = any (v_gone);
  delete from ratios_ttm where symbol = any (v_gone);
  delete from dividends where symbol = any (v_gone);
  delete from financial_statements where symbol = any (v_gone);
  delete from profiles where symbol = any (v_gone);
  get diagnostics v_mirrors = row_count;
  delete from exchange_holidays where day < date_trunc('year', pgfresh.clock()) - interval '1 year';
  get diagnostics v_holidays = row_count;
  return jsonb_build_object('success', true, 'message', format('Removed %s symbols, %s signals and %s holidays', v_mirrors, v_signals, v_holidays),
    'details', jsonb_build_object('symbols', v_gone, 'signals', v_signals, 'holidays', v_holidays));
end
$$;
comment on function run_daily_cleanup(jsonb) is 'Removes the mirrors of symbols that have not been active for some days, old signals, points of charts and old holidays.';

-- A job that was changed by hand keeps the change.
insert into pgfresh.scheduled_jobs (name, function_name, schedule, timezone, params, description)
values ('daily_cleanup', 'run_daily_cleanup', '0 3 * * *', 'America/New_York', '{"days": 30}', 'Removes old signals, and what is left of symbols that are not traded any more')
on conflict (name) do nothing;

-- The planner asks as pgfresh_evaluator. What logins of their own need: "pgfresh migrate --grants", as docs/production/deploy.md shows.
grant usage on schema public to pgfresh_evaluator;
grant select on exchanges, exchange_hours, exchange_holidays, symbols, profiles, quotes, financial_statements, ratios_ttm, dividends to pgfresh_evaluator;
grant execute on function exchange_sessions(text, date, date), is_exchange_open(text, text), exchange_opens_at(text, text) to pgfresh_evaluator;

insert into exchanges (exchange, name, zone) values
  ('XNYS', 'New York Stock Exchange', 'America/New_York'),
  ('XNAS', 'Nasdaq', 'America/New_York'),
  ('XLON', 'London Stock Exchange', 'Europe/London'),
  ('XTKS', 'Tokyo Stock Exchange', 'Asia/Tokyo'),
  ('XTOK', 'Tokens of shares, day and night', 'UTC')
on conflict (exchange) do update set name = excluded.name, zone = excluded.zone;

insert into exchange_hours (exchange, weekday, opens, closes)
select h.exchange, d.weekday, h.opens::time, h.closes::time
from (values
  ('XNYS', 5, '09:30', '16:00'),
  ('XNAS', 5, '09:30', '16:00'),
  ('XLON', 5, '08:00', '16:30'),
  ('XTKS', 5, '09:00', '11:30'),
  ('XTKS', 5, '12:30', '15:30'),
  ('XTOK', 7, '00:00', '24:00')
) as h(exchange, days, opens, closes)
cross join lateral generate_series(1, h.days) as d(weekday)
on conflict (exchange, weekday, opens) do update set closes = excluded.closes;

insert into exchange_holidays (exchange, day, name, closes)
select x.exchange, h.day::date, h.name, h.closes::time
from (values
  ('US', '2026-01-01', 'New Year''s Day', null),
  ('US', '2026-01-19', 'Martin Luther King Day', null),
  ('US', '2026-02-16', 'Washington''s Birthday', null),
  ('US', '2026-04-03', 'Good Friday', null),
  ('US', '2026-05-25', 'Memorial Day', null),
  ('US', '2026-06-19', 'Juneteenth', null),
  ('US', '2026-07-03', 'Independence Day, which is a Saturday', null),
  ('US', '2026-09-07', 'Labor Day', null),
  ('US', '2026-11-26', 'Thanksgiving Day', null),
  ('US', '2026-11-27', 'the day after Thanksgiving', '13:00'),
  ('US', '2026-12-24', 'Christmas Eve', '13:00'),
  ('US', '2026-12-25', 'Christmas Day', null),
  ('US', '2027-01-01', 'New Year''s Day', null),
  ('US', '2027-01-18', 'Martin Luther King Day', null),
  ('US', '2027-02-15', 'Washington''s Birthday', null),
  ('US', '2027-03-26', 'Good Friday', null),
  ('US', '2027-05-31', 'Memorial Day', null),
  ('US', '2027-06-18', 'Juneteenth, which is a Saturday', null),
  ('US', '2027-07-05', 'Independence Day, which is a Sunday', null),
  ('US', '2027-09-06', 'Labor Day', null),
  ('US', '2027-11-25', 'Thanksgiving Day', null),
  ('US', '2027-11-26', 'the day after Thanksgiving', '13:00'),
  ('US', '2027-12-24', 'Christmas Day, which is a Saturday', null),
  ('GB', '2026-01-01', 'New Year''s Day', null),
  ('GB', '2026-04-03', 'Good Friday', null),
  ('GB', '2026-04-06', 'Easter Monday', null),
  ('GB', '2026-05-04', 'Early May bank holiday', null),
  ('GB', '2026-05-25', 'Spring bank holiday', null),
  ('GB', '2026-08-31', 'Summer bank holiday', null),
  ('GB', '2026-12-24', 'Christmas Eve', '12:30'),
  ('GB', '2026-12-25', 'Christmas Day', null),
  ('GB', '2026-12-28', 'Boxing Day, which is a Saturday', null),
  ('GB', '2026-12-31', 'New Year''s Eve', '12:30'),
  ('GB', '2027-01-01', 'New Year''s Day', null),
  ('GB', '2027-03-26', 'Good Friday', null),
  ('GB', '2027-03-29', 'Easter Monday', null),
  ('GB', '2027-05-03', 'Early May bank holiday', null),
  ('GB', '2027-05-31', 'Spring bank holiday', null),
  ('GB', '2027-08-30', 'Summer bank holiday', null),
  ('GB', '2027-12-24', 'Christmas Eve', '12:30'),
  ('GB', '2027-12-27', 'Christmas Day, which is a Saturday', null),
  ('GB', '2027-12-28', 'Boxing Day, which is a Sunday', null),
  ('GB', '2027-12-31', 'New Year''s Eve', '12:30'),
  ('JP', '2026-01-01', 'New Year''s Day', null),
  ('JP', '2026-01-02', 'market holiday', null),
  ('JP', '2026-01-12', 'Coming of Age Day', null),
  ('JP', '2026-02-11', 'National Foundation Day', null),
  ('JP', '2026-02-23', 'Emperor''s Birthday', null),
  ('JP', '2026-03-20', 'Vernal Equinox', null),
  ('JP', '2026-04-29', 'Showa Day', null),
  ('JP', '2026-05-04', 'Greenery Day', null),
  ('JP', '2026-05-05', 'Children''s Day', null),
  ('JP', '2026-05-06', 'Constitution Day, which is a Sunday', null),
  ('JP', '2026-07-20', 'Marine Day', null),
  ('JP', '2026-08-11', 'Mountain Day', null),
  ('JP', '2026-09-21', 'Respect for the Aged Day', null),
  ('JP', '2026-09-22', 'between two holidays', null),
  ('JP', '2026-09-23', 'Autumnal Equinox', null),
  ('JP', '2026-10-12', 'Sports Day', null),
  ('JP', '2026-11-03', 'Culture Day', null),
  ('JP', '2026-11-23', 'Labor Thanksgiving Day', null),
  ('JP', '2026-12-31', 'market holiday', null),
  ('JP', '2027-01-01', 'New Year''s Day', null),
  ('JP', '2027-01-11', 'Coming of Age Day', null),
  ('JP', '2027-02-11', 'National Foundation Day', null),
  ('JP', '2027-02-23', 'Emperor''s Birthday', null),
  ('JP', '2027-03-22', 'Vernal Equinox, which is a Sunday', null),
  ('JP', '2027-04-29', 'Showa Day', null),
  ('JP', '2027-05-03', 'Constitution Day', null),
  ('JP', '2027-05-04', 'Greenery Day', null),
  ('JP', '2027-05-05', 'Children''s Day', null),
  ('JP', '2027-07-19', 'Marine Day', null),
  ('JP', '2027-08-11', 'Mountain Day', null),
  ('JP', '2027-09-20', 'Respect for the Aged Day', null),
  ('JP', '2027-09-23', 'Autumnal Equinox', null),
  ('JP', '2027-10-11', 'Sports Day', null),
  ('JP', '2027-11-03', 'Culture Day', null),
  ('JP', '2027-11-23', 'Labor Thanksgiving Day', null),
  ('JP', '2027-12-31', 'market holiday', null)
) as h(country, day, name, closes)
join (values ('US', 'XNYS'), ('US', 'XNAS'), ('GB', 'XLON'), ('JP', 'XTKS')) as x(country, exchange) using (country)
on conflict (exchange, day) do update set name = excluded.name, closes = excluded.closes;

-- Whether a symbol is active is the user's to say, so a symbol that is there stays as it is.
insert into symbols (symbol, exchange)
select s.symbol, l.exchange
from (values
  ('XNYS', 'A AA ABBV ABT ACN ADM AEE AEP AES AFL AIG ALL AMT AON APD APH ARE ATO AVB AVY AXP AZO BA BAC BALL BAX BBY BDX BEN BK BLK
    BMY BR BRO BSX BX BXP C CAG CAH CARR CAT CB CCI CCL CF CFG CHD CI CL CLX CMI CMS CNC COF COP CRL CRM CTVA CVS CVX D DAL DD DE
    DG DGX DHI DHR DIS DOV DOW DRI DTE DUK DVN EBAY ECL ED EFX EIX EL ELV EMN EMR EOG EQR ES ESS ETN ETR EW F FCX FDX FE FIS FMC
    GD GE GIS GLW GM GPC GPN GS GWW HAL HCA HD HIG HLT HPQ HSY HUM IBM ICE IFF IP IPG IT ITW J JCI JNJ JPM K KEY KMB KMI KO KR LEN
    LH LHX LLY LMT LOW LUV LYV MA MCD MCK MCO MDT MET MMM MO MRK MS'),
  ('XNAS', 'AAL AAPL ABNB ADBE ADI ADP ADSK AEG AKAM ALGN AMAT AMD AMGN AMZN ANSS ASML AVGO AXON AZN BIDU BIIB BKNG BKR CDNS CDW CEG
    CHTR CINF CMCSA CME COIN COST CPRT CRWD CSCO CSGP CSX CTAS CTSH DASH DDOG DLTR DOCU DXCM EA ENPH EQIX ERIC ETSY EVRG EXC EXPD
    EXPE FANG FAST FFIV FITB FOX FOXA FSLR FTNT GEHC GEN GFS GILD GOOG GOOGL HAS HBAN HOLX HON HST IDXX ILMN INCY INTC INTU ISRG
    JBHT JD KDP KHC KLAC LIN LKQ LRCX LULU MAR MCHP MDB MDLZ MELI META MNST MRNA MRVL MSFT MTCH MU NDAQ NFLX NTAP NTES NTRS NVDA
    NXPI ODFL OKTA ON ORLY PANW PAYX PCAR PDD PEP PFG PODD POOL PTC PYPL QCOM QRVO REGN ROKU ROP ROST SBUX SIRI SNPS SPLK STX SWKS
    TEAM TECH TER TMUS TROW TSCO TSLA TTWO TXN UAL ULTA VRSK VRSN VRTX WBD WDAY WDC ZS'),
  ('XLON', 'AAF.L AAL.L ABF.L ADM.L AHT.L ANTO.L AUTO.L AV.L AZN.L BA.L BARC.L BATS.L BDEV.L BEZ.L BKG.L BME.L BNZL.L BP.L BRBY.L BT-A.L
    CCH.L CNA.L CPG.L CRDA.L CTEC.L DCC.L DGE.L DPLM.L EDV.L ENT.L EXPN.L FCIT.L FRAS.L FRES.L GLEN.L GSK.L HIK.L HLMA.L HLN.L HSBA.L
    HSX.L HWDN.L IAG.L ICG.L IHG.L III.L IMB.L IMI.L INF.L ITRK.L JD.L KGF.L LAND.L LGEN.L LLOY.L LMP.L LSEG.L MKS.L MNDI.L MNG.L
    MRO.L NG.L NWG.L NXT.L PHNX.L PRU.L PSH.L PSN.L PSON.L REL.L RIO.L RKT.L RMV.L RR.L RTO.L SBRY.L SDR.L SGE.L SGRO.L SHEL.L SMDS.L
    SMIN.L SMT.L SN.L SPX.L SSE.L STAN.L SVT.L TSCO.L TW.L'),
  ('XTKS', '1605.T 1925.T 1928.T 2413.T 2502.T 2503.T 2801.T 2802.T 2914.T 3382.T 3402.T 3407.T 4063.T 4188.T 4452.T 4502.T 4503.T 4519.T
    4523.T 4543.T 4568.T 4578.T 4661.T 4689.T 4901.T 4911.T 5020.T 5108.T 5401.T 5713.T 5802.T 6098.T 6178.T 6273.T 6301.T 6326.T
    6367.T 6501.T 6503.T 6594.T 6702.T 6752.T 6758.T 6762.T 6857.T 6861.T 6869.T 6902.T 6954.T 6971.T 6981.T 7011.T 7201.T 7203.T
    7267.T 7269.T 7270.T 7309.T 7733.T 7741.T 7751.T 7832.T 7974.T 8001.T 8031.T 8035.T 8058.T 8306.T 8766.T 9432.T'),
  ('XTOK', 'AAPL.X ADBE.X AMD.X AMZN.X AVGO.X BA.X BABA.X BAC.X COIN.X COST.X CRM.X CVX.X DIS.X F.X GE.X GM.X GOOGL.X GS.X HD.X IBM.X
    INTC.X JNJ.X JPM.X KO.X LLY.X MA.X MCD.X META.X MSFT.X NFLX.X NKE.X NVDA.X ORCL.X PEP.X PFE.X PYPL.X TSLA.X UBER.X V.X WMT.X')
) as l(exchange, symbols)
cross join lateral regexp_split_to_table(l.symbols, '\s+') as s(symbol)
on conflict (symbol) do nothing;
