import type { IncomingMessage } from 'node:http';
import type { FaultBook } from './fault-book.ts';
import type { Meter } from './meter.ts';
import { errorReply, jsonReply, type Reply } from './reply.ts';

const largestBody = 10_000;

/** Admin routes of the provider: break it, and read its own count. They need no key and are not metered. */
export async function adminReply(
  request: IncomingMessage,
  path: string,
  book: FaultBook,
  meter: Meter,
): Promise<Reply> {
  // Prevents a page in a browser from doing this unnoticed (CSRF).
  if (request.headers.origin !== undefined) return errorReply(403, 'forbidden', 'Admin routes are not for browsers.');
  const id = /^\/admin\/faults\/(\d+)$/.exec(path)?.[1];
  switch (`${request.method} ${id === undefined ? path : '/admin/faults/:id'}`) {
    case 'GET /admin/faults':
      return jsonReply(book.report());
    case 'POST /admin/faults':
      return await ordered(request, book);
    case 'DELETE /admin/faults':
      return jsonReply({ cancelled: book.cancel() });
    case 'DELETE /admin/faults/:id':
      return book.cancel(Number(id)) > 0
        ? jsonReply({ cancelled: 1 })
        : errorReply(404, 'unknown_fault', `There is no fault ${id}; GET /admin/faults lists them.`);
    case 'GET /admin/meter':
      return jsonReply(meter.report());
    case 'GET /admin/meter/calls':
      return jsonReply(meter.calls());
    case 'DELETE /admin/meter':
      meter.reset();
      return jsonReply(meter.report());
    default:
      return errorReply(404, 'unknown_route', 'Expected /admin/faults, /admin/meter or /admin/meter/calls.');
  }
}

async function ordered(request: IncomingMessage, book: FaultBook): Promise<Reply> {
  let text = '';
  for await (const chunk of request) {
    text += String(chunk);
    if (text.length > largestBody) return errorReply(413, 'too_large', `Expected at most ${largestBody} bytes.`);
  }
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return errorReply(400, 'bad_request', 'Expected JSON such as {"kind":"down","route":"quote","times":10}.');
  }
  const fault = book.order(body);
  return 'problem' in fault ? errorReply(400, 'bad_request', fault.problem) : jsonReply(fault, 201);
}
