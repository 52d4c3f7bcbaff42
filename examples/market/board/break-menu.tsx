import { useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';
import { tell, type Trouble } from './server.ts';

const troubles = [
  ['none', 'Back to normal', 'It answers at once, and tells the truth.'],
  ['down', 'Take it down', 'Every connection is reset.'],
  ['slow', 'Make it slow', 'It answers after 30 s, and nobody waits longer than 10.'],
  ['lying', 'Make it lie', 'Prices of a billion, and answers about another company.'],
  ['stuck', 'Let its cache get stuck', 'It answers with what it knew long ago.'],
  ['locked', 'Expire the API key', 'Every call is refused with status 401.'],
  ['changed', 'Rename a field', 'Its answers have another form than before.'],
  ['gone', 'Let it lose everything', 'It says that there is nothing.'],
] as const satisfies readonly (readonly [Trouble, string, string])[];

interface BreakMenuProps {
  readonly trouble: Trouble;
  readonly onChange: () => void;
}

/** Breaks the provider, to show how pgfresh copes. */
export function BreakMenu({ trouble, onChange }: BreakMenuProps) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    menu.current!.querySelector<HTMLElement>('[aria-checked=true]')?.focus();
    const away = (event: PointerEvent): void => {
      const target = event.target as Node;
      if (!menu.current?.contains(target) && !button.current?.contains(target)) setOpen(false);
    };
    document.addEventListener('pointerdown', away);
    return () => document.removeEventListener('pointerdown', away);
  }, [isOpen]);

  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  const pick = async (wish: Trouble): Promise<void> => {
    close();
    await tell('PUT', '/dev/provider', { trouble: wish });
    onChange();
  };
  const move = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') close();
    if (event.key === 'Tab') setOpen(false);
    const items = [...menu.current!.querySelectorAll<HTMLElement>('[role=menuitemradio]')];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const goal = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    items.at(goal % items.length)?.focus();
  };
  return (
    <div className="break">
      <button
        type="button"
        ref={button}
        className={trouble === 'none' ? 'button' : 'button alarming'}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        Break the provider
        <svg viewBox="0 0 12 12" aria-hidden="true" className="chevron">
          <path d="M2.5 4.5 6 8l3.5-3.5" />
        </svg>
      </button>
      {isOpen && (
        <div
          id={id}
          ref={menu}
          className="menu"
          role="menu"
          aria-label="Break the provider"
          onKeyDown={move}
          tabIndex={-1}
        >
          {troubles.map(([name, label, what]) => (
            <button
              key={name}
              type="button"
              role="menuitemradio"
              aria-checked={trouble === name || (name === 'none' && trouble === 'other')}
              tabIndex={-1}
              onClick={() => void pick(name)}
            >
              <b>{label}</b>
              <span>{what}</span>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
