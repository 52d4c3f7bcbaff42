import { use, useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';
import { ListingContext } from './listing.ts';
import { searchSymbols } from './symbol-search.ts';

const most = 8;

/** Finds one of the symbols by its ticker, its company or its exchange. */
export function Search({ onPick }: { readonly onPick: (symbol: string) => void }) {
  const listing = use(ListingContext);
  const [text, setText] = useState('');
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const found = searchSymbols(listing, text);
  const shown = found.slice(0, most);
  const isShown = isOpen && text.trim() !== '';

  useEffect(() => {
    const focus = (event: globalThis.KeyboardEvent): void => {
      const isTyping = (event.target as HTMLElement).matches('input, textarea, select');
      if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener('keydown', focus);
    return () => document.removeEventListener('keydown', focus);
  }, []);

  const pick = (symbol: string): void => {
    setText('');
    setOpen(false);
    onPick(symbol);
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && shown.length > 0) {
      event.preventDefault();
      setOpen(true);
      setActive((active + step + shown.length) % shown.length);
    } else if (event.key === 'Enter' && isShown && shown[active]) pick(shown[active].symbol);
    else if (event.key === 'Escape') {
      setText('');
      setOpen(false);
    }
  };
  return (
    <div className="search">
      <svg viewBox="0 0 20 20" aria-hidden="true">
        <circle cx="9" cy="9" r="5.5" />
        <path d="m13.2 13.2 3.6 3.6" />
      </svg>
      <input
        ref={input}
        type="search"
        role="combobox"
        aria-label="Search for a symbol"
        aria-expanded={isShown}
        aria-controls={`${id}list`}
        aria-autocomplete="list"
        aria-activedescendant={isShown && shown[active] ? `${id}${active}` : undefined}
        placeholder={`Search ${listing.symbols.length || ''} symbols`}
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
          setOpen(true);
        }}
        onKeyDown={press}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
      />
      <kbd aria-hidden="true">/</kbd>
      <ul id={`${id}list`} role="listbox" aria-label="Symbols" hidden={!isShown}>
        {shown.map(({ symbol, name, exchange, open }, index) => (
          <li
            key={symbol}
            id={`${id}${index}`}
            role="option"
            aria-selected={index === active}
            // The field must not lose the focus before the click is done.
            onPointerDown={(event) => event.preventDefault()}
            onClick={() => pick(symbol)}
          >
            <b>{symbol}</b>
            {name === null ? <span className="soft">nobody has looked yet</span> : <span>{name}</span>}
            <small>
              <i className={open ? 'dot good' : 'dot'} />
              {open ? 'open' : 'closed'} · {exchange}
            </small>
          </li>
        ))}
        {found.length === 0 && <li className="none">Nothing is called “{text.trim()}”.</li>}
      </ul>
      <p className="hidden" role="status">
        {isShown && `${found.length} found`}
      </p>
    </div>
  );
}
