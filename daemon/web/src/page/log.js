// The end of the daemon's log; scrolls along while the last line is visible.

import { byId, element } from './dom.js';
import { clock } from './format.js';
import { ask } from './connection.js';

const INTERVAL_MS = 2000;
/** The number that the daemon keeps. */
const MOST_LINES = 500;
const LEVELS = ['error', 'warn', 'info', 'debug'];

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

  #clear() {
    this.#lines = [];
    this.#after = 0;
    this.#box.replaceChildren();
  }

  async #follow() {
    for (;;) {
      try {
        const from = this.#after;
        const answer = await ask(`api/v1/log?after=${from}`);
        if (answer.ok && from === this.#after) this.#take(answer.body);
      } catch {
        // The status shows that the daemon does not answer.
      }
      await new Promise((done) => setTimeout(done, document.hidden ? 10 * INTERVAL_MS : INTERVAL_MS));
    }
  }

  #take({ lines, last }) {
    // A smaller number than before: the daemon restarted, and sends all of its lines.
    if (last < this.#after) this.#clear();
    this.#after = last;
    if (lines.length === 0) return;
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

  #fits({ level, about, message }) {
    const wanted = this.#find.value.trim().toLowerCase();
    return LEVELS.indexOf(level) <= LEVELS.indexOf(this.#level.value) && `${(about ?? []).join(' ')} ${message}`.toLowerCase().includes(wanted);
  }

  #atEnd() {
    return this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight < 40;
  }

  #toEnd() {
    this.#box.scrollTop = this.#box.scrollHeight;
  }
}

function row({ at, level, message }) {
  const cells = [element('time', { textContent: clock(at), title: at })];
  cells.push(element('span', { className: 'level', textContent: level }), element('span', { className: 'text', textContent: message }));
  return element('div', { 'data-level': level }, ...cells);
}
