// The end of the daemon's log, followed while its last line is in sight.

import { byId, element } from './dom.js';
import { clock } from './format.js';
import { ask } from './connection.js';

const INTERVAL_MS = 2000;
/** As many as the daemon keeps. */
const MOST_LINES = 500;
const LEVELS = ['error', 'warn', 'info', 'debug', 'trace'];

export class Log {
  #lines = [];
  #after = 0;
  #box = byId('log');
  #level = byId('log-level');
  #find = byId('log-find');

  constructor() {
    this.#level.addEventListener('change', () => this.#show());
    this.#find.addEventListener('input', () => this.#show());
    this.#follow();
  }

  /** Another daemon counts anew. */
  clear() {
    this.#lines = [];
    this.#after = 0;
    this.#box.replaceChildren();
  }

  async #follow() {
    for (;;) {
      try {
        const from = this.#after;
        const answer = await ask(`/api/v1/log?after=${from}`);
        if (answer.ok && from === this.#after) this.#take(answer.body.lines);
      } catch {
        // The status says that nothing comes.
      }
      await new Promise((done) => setTimeout(done, document.hidden ? 10 * INTERVAL_MS : INTERVAL_MS));
    }
  }

  #take(lines) {
    if (lines.length === 0) return;
    this.#after = lines.at(-1).number;
    this.#lines.push(...lines);
    const atEnd = this.#atEnd();
    this.#box.append(...lines.filter((line) => this.#fits(line)).map(row));
    if (this.#lines.length > MOST_LINES) {
      this.#lines.splice(0, this.#lines.length - MOST_LINES);
      while (this.#box.childElementCount > MOST_LINES) this.#box.firstChild.remove();
    }
    if (atEnd) this.#toEnd();
  }

  #show() {
    this.#box.replaceChildren(...this.#lines.filter((line) => this.#fits(line)).map(row));
    this.#toEnd();
  }

  #fits({ level, subject, text }) {
    const wanted = this.#find.value.trim().toLowerCase();
    const least = this.#level.value === 'debug' ? 'trace' : this.#level.value;
    return LEVELS.indexOf(level.toLowerCase()) <= LEVELS.indexOf(least) && `${subject ?? ''} ${text}`.toLowerCase().includes(wanted);
  }

  #atEnd() {
    return this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 40;
  }

  #toEnd() {
    this.#box.scrollTop = this.#box.scrollHeight;
  }
}

function row({ time, level, text }) {
  const short = level.toLowerCase();
  const when = element('time', { textContent: clock(time), title: time });
  return element('div', { 'data-level': short }, when, element('span', { className: 'level', textContent: short }), element('span', { className: 'text', textContent: text }));
}
