import type { Refusal } from './fresh.ts';
import type { Link, LinkListener } from './link.ts';
import { protocol, type ServerMessage } from './protocol.ts';

/** A link for networks that break WebSockets. Uses fetch, because an EventSource cannot send a token. */
export function openEventStream(url: string, token: string | undefined, { receive, end }: LinkListener): Link {
  const abort = new AbortController();
  const { signal } = abort;
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
  let session = '';
  let sent: Promise<unknown> = Promise.resolve();

  const finish = (code: number, refusal?: Refusal): void => {
    if (signal.aborted) return;
    abort.abort();
    end(code, refusal);
  };

  const read = async (): Promise<void> => {
    const response = await fetch(`${url}/events?protocol=${protocol}`, { headers, signal });
    if (!response.ok) {
      const { error } = (await response.json()) as { error?: Refusal };
      return finish(4_000 + response.status, error);
    }
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (text + part.value).split('\n\n');
      text = events.pop()!;
      for (const event of events) {
        if (!event.startsWith('data:') || signal.aborted) continue;
        const message = JSON.parse(event.slice(5)) as ServerMessage;
        if (message.type === 'welcome') session = message.session!;
        receive(message);
      }
    }
    return finish(1006);
  };
  read().catch(() => finish(1006));

  return {
    send(message) {
      if (message.type === 'auth') headers['authorization'] = `Bearer ${message.token}`;
      // One after another, because concurrent requests may arrive in another order.
      sent = sent
        .then(() =>
          fetch(`${url}/events/${session}`, { method: 'POST', headers, signal, body: JSON.stringify(message) }),
        )
        .then(async (response) => {
          await response.arrayBuffer();
          // A lost message cannot be repeated, but a new connection requests everything again.
          if (!response.ok) finish(1006);
        })
        .catch(() => finish(1006));
    },
    close: () => abort.abort(),
  };
}
