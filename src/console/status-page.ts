import { html } from 'hono/html';
import type { HealthReport } from '../watch/index.ts';

export interface Status {
  readonly version: string;
  readonly roles: readonly string[];
  readonly database: string;
  readonly health: HealthReport;
}

interface StatusWithProblems extends Status {
  /** One sentence for each source, data type or job that does not work as it should. */
  readonly problems: readonly string[];
}

/** The page at `/status`: roles, health, problems, and links to the machine-readable pages. */
export function statusPage({ version, roles, database, health, problems }: StatusWithProblems) {
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>pgfresh</title>
        <style>
          :root {
            color-scheme: light dark;
            --ink: #1d2433;
            --soft: #5d6678;
            --line: #dfe3ea;
            --paper: #fff;
            --back: #f5f7fa;
            --good: #12764a;
            --bad: #b42318;
          }
          @media (prefers-color-scheme: dark) {
            :root {
              --ink: #e8ebf1;
              --soft: #9aa4b5;
              --line: #2c3442;
              --paper: #181d26;
              --back: #10141b;
              --good: #4cc38a;
              --bad: #ff8a7a;
            }
          }
          body {
            margin: 0;
            background: var(--back);
            color: var(--ink);
            font:
              16px/1.5 system-ui,
              sans-serif;
          }
          main {
            max-width: 42rem;
            margin: 0 auto;
            padding: 3rem 1.25rem;
          }
          h1 {
            font-size: 1.75rem;
            margin: 0;
            letter-spacing: -0.02em;
          }
          h2 {
            font-size: 0.8rem;
            text-transform: uppercase;
            letter-spacing: 0.08em;
            color: var(--soft);
            margin: 2.5rem 0 0.5rem;
          }
          p {
            margin: 0.25rem 0 0;
            color: var(--soft);
          }
          ul {
            list-style: none;
            margin: 0;
            padding: 0;
            background: var(--paper);
            border: 1px solid var(--line);
            border-radius: 0.6rem;
          }
          li {
            display: flex;
            flex-wrap: wrap;
            gap: 0.25rem 1rem;
            padding: 0.7rem 1rem;
            border-top: 1px solid var(--line);
          }
          li:first-child {
            border-top: 0;
          }
          li b {
            flex: 0 0 9rem;
            font-weight: 600;
          }
          li span,
          li a {
            flex: 1 1 12rem;
            color: var(--soft);
            overflow-wrap: anywhere;
          }
          a {
            color: inherit;
          }
          a:focus-visible {
            outline: 2px solid currentcolor;
            outline-offset: 2px;
          }
          .good,
          li .good {
            color: var(--good);
          }
          .bad,
          li .bad {
            color: var(--bad);
          }
        </style>
      </head>
      <body>
        <main>
          <h1>
            pgfresh <small class="${health.ready ? 'good' : 'bad'}">${health.ready ? 'ready' : 'not ready'}</small>
          </h1>
          <p>Version ${version}, running ${roles.join(', ')} on PostgreSQL at ${database}.</p>
          ${
            problems.length === 0
              ? ''
              : html`<h2>What is wrong</h2>
                  <ul>
                    ${problems.map((problem) => html`<li><span class="bad">${problem}</span></li>`)}
                  </ul>`
          }
          <h2>Checks</h2>
          <ul>
            ${health.checks.map((check) => html`<li><b class="${check.ok ? 'good' : 'bad'}">${check.ok ? '✓' : '✗'} ${check.name}</b><span>${check.detail}</span></li>`)}
          </ul>
          <h2>For machines</h2>
          <ul>
            <li>
              <b><a href="/readyz?verbose">/readyz?verbose</a></b
              ><span>whether this process can work now, as JSON</span>
            </li>
            <li>
              <b><a href="/metrics">/metrics</a></b
              ><span>counters for Prometheus</span>
            </li>
            <li>
              <b><a href="/api/status">/api/status</a></b
              ><span>this page as JSON</span>
            </li>
            <li>
              <b><a href="/api/overview">/api/overview</a></b
              ><span>how fresh everything is, the queue and the limits, as JSON</span>
            </li>
            <li>
              <b><a href="/api/jobs">/api/jobs</a></b
              ><span>what runs at set times, and how it went, as JSON</span>
            </li>
          </ul>
        </main>
      </body>
    </html>`;
}
