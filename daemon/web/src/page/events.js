// The list of the newest events: one row for each, from its begin to its end.

import { byId, element, write, attribute, show, keep } from './dom.js';
import { clock, duration } from './format.js';
import { ask } from './connection.js';

/** The number that the daemon keeps. */
const MOST = 200;
const REASONS = {
  over: 'ended',
  track_ended: 'track ended',
  track_lost: 'track lost',
  frames_missing: 'no frames',
  condition: 'condition',
  rule_off: 'rule off',
  rule_removed: 'rule removed',
  camera_gone: 'tracks gone',
  shutdown: 'visiond stopped',
  restart: 'visiond restarted',
};
/** How often and when to ask again for an image: it is written a moment after its event. */
const RETRIES = 5;
const RETRY_MS = 1000;
const NEW_TAB = { target: '_blank', rel: 'noopener' };

/** Makes a small image of an event, which leads to the large one. */
function thumbnail(event) {
  const image = element('img', { loading: 'lazy', decoding: 'async', alt: `Image of ${event.rule}` });
  const link = element('a', NEW_TAB, image);
  let left = RETRIES;
  image.addEventListener('error', () => {
    left -= 1;
    if (left > 0) setTimeout(() => (image.src = `${link.href}?${left}`), RETRY_MS);
    else show(link, false);
  });
  return link;
}

export class Events {
  /** By the id of the event, in the order of their begins. */
  #rows = new Map();
  /** What came while the list was loaded. */
  #waiting = null;
  #turn = 0;
  #now = 0;
  #due = false;
  #cameras = [];
  #rules;
  #choose;
  #filters = ['camera', 'kind'].map((name) => [name, byId(`events-${name}`)]);

  /** Gives totals to `rules`; calls `choose(camera)` when a row is pressed. */
  constructor(rules, choose) {
    this.#rules = rules;
    this.#choose = choose;
    for (const [, field] of this.#filters) field.addEventListener('input', () => this.#draw());
  }

  /** Loads the events that the daemon has kept. Those that come meanwhile may be among them. */
  async load() {
    const turn = (this.#turn += 1);
    this.#waiting ??= [];
    const answer = await ask('api/v1/events').catch(() => null);
    if (turn !== this.#turn) return;
    let later = this.#waiting;
    this.#waiting = null;
    if (answer?.ok) {
      const { events, totals } = answer.body;
      const known = new Set(events.map(({ id }) => id));
      later = later.filter(({ id }) => !known.has(id));
      this.#rows.clear();
      for (const event of events.reverse()) this.#put(event);
      this.#rules.reset(totals);
    }
    for (const event of later) this.add(event);
    this.#draw();
  }

  add(event) {
    if (this.#waiting) return void this.#waiting.push(event);
    this.#put(event);
    this.#rules.count(event);
    this.#draw();
  }

  status({ at, cameras }) {
    this.#now = Date.parse(at);
    this.#cameras = cameras.map(({ name }) => name);
    this.#draw();
  }

  #put(event) {
    const row = this.#rows.get(event.event) ?? { first: event };
    this.#rows.set(event.event, { ...row, last: event, label: event.label ?? row.label, count: event.count ?? row.count, image: event.image ?? row.image, clip: event.clip ?? row.clip });
    if (this.#rows.size > MOST) this.#rows.delete(this.#rows.keys().next().value);
  }

  /** Draws before the page is painted. */
  #draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#paint();
    });
  }

  #paint() {
    const rows = [...this.#rows.values()].reverse();
    show(byId('events'), rows.length > 0 || this.#rules.any);
    for (const [name, field] of this.#filters) {
      const values = [...new Set(rows.map(({ first }) => first[name]))].sort();
      keep(field, ['', ...values], (value) => value, (value) => element('option', { value, textContent: value || 'all' }), () => {});
    }
    const shown = rows.filter(({ first }) => this.#filters.every(([name, { value }]) => !value || first[name] === value));
    write(byId('events-count'), rows.length === shown.length ? '' : `${shown.length} of ${rows.length}`);
    show(byId('no-events'), shown.length === 0);
    write(byId('no-events'), rows.length > 0 ? 'No event matches the filter.' : 'None yet.');
    const make = ({ first: { camera } }) => {
      const choose = element('button', { type: 'button', className: 'choose', textContent: camera });
      choose.addEventListener('click', () => this.#choose(camera));
      return element('li', {}, element('time'), choose, ...['rule', 'phase', 'long', 'what'].map((className) => element('span', { className })), element('span', { className: 'files' }));
    };
    keep(byId('events-list'), shown, ({ first }) => first.event, make, (node, { first, last, label, count, image, clip }) => {
      const [time, choose, rule, phase, long, what, files] = node.children;
      const over = last.phase === 'end';
      const lasts = first.phase !== 'moment';
      // Of an event whose begin is no longer kept, only the end is known.
      const whole = first.phase !== 'end';
      write(time, clock(whole ? first.since : last.since));
      time.dateTime = first.since;
      // A removed camera has no picture.
      choose.disabled = !this.#cameras.includes(first.camera);
      write(rule, first.kind === 'line' ? first.rule : `${first.rule} · ${first.kind.replace('_', ' ')}`);
      write(phase, !lasts ? `to ${first.to}` : over ? REASONS[last.reason] ?? last.reason : 'now');
      attribute(phase, 'data-level', lasts && !over ? 'ok' : null);
      const end = over ? Date.parse(last.since) : this.#now;
      write(long, lasts && whole && end ? duration((end - Date.parse(first.since)) / 1000) : '');
      // A clip is there some seconds after its event.
      const names = Object.entries({ image, clip: (over || !lasts) && clip }).flatMap(([name, file]) => (file ? [name] : []));
      keep(files, names, (name) => name, (name) => (name === 'image' ? thumbnail(first) : element('a', { ...NEW_TAB, textContent: 'Clip', 'aria-label': `Clip of ${first.rule}` })), (link, name) => {
        // A better image may have taken the place of the first one.
        const href = `api/v1/events/${first.event}/${name}${over ? '?end' : ''}`;
        if (link.getAttribute('href') === href) return;
        link.href = href;
        if (name === 'image') link.firstChild.src = href;
        show(link, true);
      });
      write(what, label ? `${label}${first.track ? ` #${last.track ?? first.track}` : ''}` : count === undefined ? '' : `${count} inside`);
    });
  }
}
