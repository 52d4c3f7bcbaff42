import { exchanges, type Exchange, type Listing } from './listings.ts';
import { hash, pick, uniform } from './random.ts';
import { stepMs, Walk } from './walk.ts';

const sectors = {
  Technology: ['Semiconductors', 'Application software', 'Consumer electronics'],
  Healthcare: ['Biotechnology', 'Medical devices', 'Diagnostics'],
  Industrials: ['Aerospace', 'Railroads', 'Industrial machinery'],
  Financials: ['Regional banks', 'Insurance', 'Asset management'],
  Energy: ['Oil and gas', 'Solar', 'Utilities'],
  Consumer: ['Restaurants', 'Packaged foods', 'Apparel'],
} as const;

const firstWords =
  `Alder Amber Arden Birch Brook Calder Cedar Clover Coral Delta Ember Fairway Falcon Garnet Granite Harbour Harrow
  Hazel Indigo Jasper Juniper Keystone Lantern Linden Maple Meridian Noble Northgate Oakfield Onyx Orchard Pebble Quarry Raven Ridge
  Saffron Sterling Summit Thistle Vale Willow Zephyr`.split(/\s+/);
const lastWords = 'Company Group Holdings Industries International Partners Trust Works'.split(' ');
const people = 'Ada Boris Carla Dmitri Elena Farid Grace Hiro Ines Jonas Kira Luis Mara Nadia Omar Priya'.split(' ');
const families = 'Abbot Brandt Castell Dufour Eriksen Fontaine Grieg Hollis Ibarra Jansen Kovac Lindt'.split(' ');

/** The fixed facts of a listed company, from the seed and the symbol alone. */
export class Company {
  readonly symbol: string;
  readonly exchange: Exchange;
  readonly currency: string;
  readonly country: string;
  readonly decimals: number;
  readonly name: string;
  readonly sector: string;
  readonly industry: string;
  /** Null if the office is vacant. */
  readonly ceo: string | null;
  readonly website: string | null;
  readonly employees: number;
  readonly ipoDate: string;
  readonly shares: number;
  readonly averageVolume: number;
  /** The mark of this company in everything that is drawn by chance. */
  readonly mark: number;
  /** Where its walk began. */
  readonly basePrice: number;
  readonly #walk: Walk;

  constructor(seed: number, { symbol, exchange }: Listing) {
    const { currency, country, decimals, lowest, highest } = exchanges[exchange];
    const mark = hash(seed, symbol);
    this.mark = mark;
    this.symbol = symbol;
    this.exchange = exchange;
    this.currency = currency;
    this.country = country;
    this.decimals = decimals;
    this.name = `${pick(firstWords, mark, 'first')} ${pick(lastWords, mark, 'last')}`;
    this.sector = pick(Object.keys(sectors), mark, 'sector');
    this.industry = pick(sectors[this.sector as keyof typeof sectors], mark, 'industry');
    this.ceo = uniform(mark, 'ceo') < 0.05 ? null : `${pick(people, mark, 'person')} ${pick(families, mark, 'family')}`;
    this.website = uniform(mark, 'site') < 0.1 ? null : `https://${this.name.toLowerCase().replace(' ', '-')}.example`;
    this.employees = Math.round(50 * 4_000 ** uniform(mark, 'employees'));
    this.ipoDate = new Date(Date.UTC(1970 + (hash(mark, 'ipo') % 52), 0, 1 + (hash(mark, 'day') % 365)))
      .toISOString()
      .slice(0, 10);
    this.shares = Math.round(2e7 * 200 ** uniform(mark, 'shares'));
    this.averageVolume = Math.round(this.shares * (0.001 + 0.01 * uniform(mark, 'volume')));
    this.basePrice = lowest * (highest / lowest) ** uniform(mark, 'price');
    const yearly = 0.12 + 0.4 * uniform(mark, 'volatility');
    this.#walk = new Walk(mark, yearly / Math.sqrt((365 * 86_400_000) / stepMs));
  }

  /** Its price in a second of the walk. */
  price(step: number): number {
    const tick = 10 ** -this.decimals;
    return Math.max(tick, round(this.basePrice * Math.exp(this.#walk.at(step)), this.decimals));
  }
}

export function round(value: number, decimals: number): number {
  return Number(value.toFixed(decimals));
}
