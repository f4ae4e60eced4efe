// Edits the masks, lines and zones of the chosen camera on its picture, shows them as TOML for the configuration, and has the daemon
// write them into it where that is allowed.

import { byId, element, write, attribute, show, keep, speak } from './dom.js';
import { plural } from './format.js';
import { ask } from './connection.js';
import { fault } from './shape.js';
import { WHOLE, fractions } from './rules.js';
import { Drawing } from './drawing.js';

const SQUARE = [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.6]];
/** What a line or zone sees. */
const SEEN = { classes: [], min_score: 0, anchor: 'bottom', settle: '200 ms', hold: '1 s', only_while: [], unless: [] };
/** What can be drawn: a table below [[camera]] with its points and its other keys, which have these defaults; those in `fields` can be edited. */
const KINDS = [
  { table: 'privacy', title: 'Privacy mask', key: 'polygon', closed: true, least: 3, start: SQUARE, others: { fill: 'black' }, fields: { fill } },
  { table: 'ignore', title: 'Ignore mask', key: 'polygon', closed: true, least: 3, start: SQUARE, others: { classes: [] }, fields: { classes: words } },
  { table: 'line', title: 'Line', key: 'points', closed: false, least: 2, start: [[0.3, 0.5], [0.7, 0.5]], others: { name: '', sides: ['left', 'right'], ...SEEN }, fields: { name: names(['name']), sides: names(['left', 'right']), classes: words } },
  { table: 'zone', title: 'Zone', key: 'polygon', closed: true, least: 3, start: SQUARE, others: { name: '', visits: true, parked: false, ...SEEN }, fields: { name: names(['name']), classes: words } },
];
/** The most tables of a kind, as in the daemon. */
const MOST = 32;
/** A reload may load a model that has changed as well. */
const TIMEOUT_MS = 180_000;

const button = (textContent, click) => {
  const node = element('button', { type: 'button', textContent });
  node.addEventListener('click', click);
  return node;
};
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

function toml(value) {
  if (Array.isArray(value)) return `[${value.map(toml).join(', ')}]`;
  if (typeof value !== 'object') return JSON.stringify(value);
  return `{ ${Object.entries(value).map(([key, part]) => `${key} = ${toml(part)}`).join(', ')} }`;
}

/** Returns the keys of a table: those that are not as by default, or that `written` has. */
function keys({ kind, points, others: { name, ...others } }, written = {}) {
  const set = Object.entries(others).filter(([key, value]) => key in written || !same(value, kind.others[key]));
  const isWhole = kind.table === 'zone' && !(kind.key in written) && same(points, WHOLE);
  return [...(name === undefined ? [] : [['name', name]]), ...(isWhole ? [] : [[kind.key, points]]), ...set];
}

function table(mask) {
  return [`[[camera.${mask.kind.table}]]`, ...keys(mask).map(([key, value]) => `${key} = ${toml(value)}`)].join('\n');
}

/** Returns a mask, line or zone for the daemon: the file keeps the text of what is the same. */
function wanted(mask) {
  const { was, written, loaded } = mask;
  return { was, table: table(mask) === loaded ? written : Object.fromEntries(keys(mask, written)) };
}

/** Returns what the daemon would refuse about a mask, line or zone besides its points, or null. */
function wrongName({ others: { name, sides = [] } }, all) {
  if (name === undefined) return null;
  const bad = [name, ...sides].find((word) => !/^[\w-]{1,64}$/.test(word));
  if (bad !== undefined) return `has the name "${bad}": write 1 to 64 letters (a-z), digits, - and _`;
  if (all.filter(({ others }) => others.name === name).length > 1) return 'has the name of another line or zone: change one';
  return sides.length > 0 && sides[0] === sides[1] ? 'has two sides of one name: change one' : null;
}

function note(words) {
  write(byId('masks-note'), words);
  show(byId('masks-note'), Boolean(words));
}

const text = (masks) => masks.map(table).join('\n\n');

export class Masks {
  #name = null;
  #cameras = [];
  /** What was drawn on each camera. */
  #drafts = new Map();
  /** What the file said about each camera when it was loaded: the text of its masks, whether it has tracks, the version of the file, and whether it may be changed. */
  #files = new Map();
  /** What the daemon refused, by mask. */
  #refused = new Map();
  /** Counts loads and edits, so that an answer that comes late changes nothing. */
  #turn = 0;
  #mask = null;
  #error = '';
  #list = byId('masks-list');
  #loads = 0;
  #open = byId('masks-open');
  #applier = byId('masks-apply');
  #adders = KINDS.map((kind) => button(`Add ${kind.title.toLowerCase()}`, () => this.#add(kind)));
  #drawing = new Drawing({
    changed: (words) => {
      this.#edited();
      this.#show(words);
    },
    choose: (mask) => this.#choose(mask),
    leave: () => this.#list.querySelector('[aria-pressed=true]').focus(),
  });

  constructor() {
    this.#open.addEventListener('click', () => this.#toggle(byId('masks').hidden));
    byId('masks-close').addEventListener('click', () => this.#toggle(false));
    byId('masks-load').addEventListener('click', () => this.#load(true));
    byId('masks-point').addEventListener('click', () => this.#drawing.remove());
    byId('masks-add').prepend(...this.#adders);
    this.#applier.addEventListener('click', () => this.#apply(false));
    byId('masks-copy').addEventListener('click', ({ target }) => {
      byId('masks-toml').select();
      // Unlike the clipboard's own interface, this works without TLS.
      write(target, document.execCommand('copy') ? 'Copied' : 'Not copied: select the text');
      speak(target.textContent);
      target.focus();
    });
  }

  /** Another camera is shown large. */
  choose(name) {
    if (name === this.#name) return;
    this.#name = name;
    this.#toggle(false, false);
    this.status({ cameras: this.#cameras });
  }

  status({ cameras }) {
    this.#cameras = cameras;
    const camera = cameras.find((each) => each.name === this.#name);
    this.#open.disabled = !camera?.width;
    if (camera) this.#drawing.fit(camera);
  }

  get #masks() {
    return this.#drafts.get(this.#name) ?? [];
  }

  #toggle(open, focus = true) {
    if (open && this.#open.disabled) return;
    show(byId('masks'), open);
    note('');
    attribute(this.#open, 'aria-expanded', String(open));
    this.#mask = open ? this.#masks[0] ?? null : null;
    if (open) this.#load();
    if (open) this.status({ cameras: this.#cameras });
    this.#show();
    if (focus) (open ? byId('masks-title') : this.#open).focus();
  }

  get #path() {
    return `api/v1/cameras/${encodeURIComponent(this.#name)}/shapes`;
  }

  #edited() {
    this.#turn += 1;
    this.#refused.clear();
  }

  /** Counts loads under way: the first one to end must not hide that another is not over. */
  #busy(change) {
    this.#loads += change;
    attribute(byId('masks'), 'aria-busy', String(this.#loads > 0));
  }

  /** Takes the masks of the configuration file, unless others were drawn and `instead` is not set. */
  async #load(instead = false) {
    const name = this.#name;
    const turn = (this.#turn += 1);
    this.#busy(1);
    const answer = await ask(this.#path).catch(() => null);
    this.#busy(-1);
    const { ok, body, version } = answer ?? {};
    if (turn !== this.#turn || name !== this.#name) return;
    note(ok ? body.reason : `Cannot load the configuration: ${body?.detail ?? 'load it again.'}`);
    if (!ok) return;
    const read = (kind, written, was) => {
      const { [kind.key]: points = [], frame_size, ...rest } = written;
      const others = { ...kind.others, ...rest };
      const { wrong_way } = others;
      if (wrong_way) others.wrong_way = { ...wrong_way, direction: fractions(wrong_way.direction, written) };
      const mask = { kind, points: points.length > 0 ? fractions(points, written) : structuredClone(WHOLE), others, was, written };
      return Object.assign(mask, { loaded: table(mask) });
    };
    const masks = KINDS.flatMap((kind) => body[kind.table].map((table, was) => read(kind, table, was)));
    const file = { text: text(masks), track: body.track, version, writable: body.allowed && !body.reason };
    const before = this.#files.get(name);
    if (!instead && before && text(this.#masks) !== before.text) {
      if (file.text === before.text) this.#files.set(name, file);
      else note('The configuration has changed since you began: load it again to see that.');
      return;
    }
    const at = this.#masks.indexOf(this.#mask);
    this.#refused.clear();
    this.#drafts.set(name, masks);
    this.#files.set(name, file);
    if (!byId('masks').hidden) this.#choose(masks[at] ?? masks[0] ?? null);
  }

  /** Has the daemon write what was drawn into its configuration and reload it. */
  async #apply(uncover) {
    const name = this.#name;
    const masks = this.#masks;
    const turn = this.#turn;
    const lists = KINDS.map(({ table }) => [table, masks.filter(({ kind }) => kind.table === table)]);
    const shapes = lists.map(([table, list]) => [table, list.map(wanted)]);
    this.#applier.disabled = true;
    note('');
    const headers = { 'content-type': 'application/json', 'if-match': this.#files.get(name).version };
    const answer = await ask(this.#path, { method: 'PUT', headers, body: JSON.stringify({ ...Object.fromEntries(shapes), uncover }), timeout: TIMEOUT_MS }).catch(() => null);
    if (name !== this.#name) return;
    this.#applier.disabled = false;
    const { ok, body } = answer ?? {};
    if (ok) {
      await this.#load(turn === this.#turn);
      write(this.#applier, `Applied in ${body.took_ms} ms`);
      speak(this.#applier.textContent);
    } else if (body?.uncovers && !uncover) {
      if (confirm(`${plural(body.uncovers, 'privacy mask')} of ${body.cameras.join(' and ')} will go or change. Images, clips and messages can then show what is hidden now. Apply this?`)) return this.#apply(true);
    } else {
      const errors = body?.errors ?? [];
      for (const { kind, place, message } of errors) if (kind) this.#refused.set(Object.fromEntries(lists)[kind][place], `is refused: ${message}`);
      const [first] = this.#refused.keys();
      this.#choose(first ?? this.#mask);
      if (!first || errors.some(({ kind }) => !kind)) note(body?.detail ?? 'visiond did not answer. Its log has the outcome.');
      if (first) return this.#list.querySelector('[aria-pressed=true]').focus();
    }
    this.#applier.focus();
  }

  #choose(mask) {
    this.#mask = mask;
    this.#show();
  }

  #add(kind) {
    this.#edited();
    const mask = { kind, points: kind.start.map(([...point]) => point), others: { ...kind.others } };
    const taken = (name) => this.#masks.some(({ others }) => others.name === name);
    for (let at = 1; mask.others.name === '' || (kind.fields.name && taken(mask.others.name)); at += 1) mask.others.name = `${kind.table}-${at}`;
    const before = (each) => KINDS.indexOf(each.kind) <= KINDS.indexOf(kind);
    this.#drafts.set(this.#name, [...this.#masks.filter(before), mask, ...this.#masks.filter((each) => !before(each))]);
    this.#choose(mask);
    this.#drawing.focus();
  }

  #remove(mask) {
    this.#edited();
    this.#drafts.set(this.#name, this.#masks.filter((each) => each !== mask));
    this.#choose(this.#masks[0] ?? null);
    byId('masks-title').focus();
  }

  /** Shows everything, and says `words` unless there is a new error to say. */
  #show(words = '') {
    const masks = this.#masks;
    write(byId('masks-title'), `Masks, lines and zones of ${this.#name}`);
    write(byId('masks-point'), `Delete ${this.#mask?.kind.closed === false ? 'point' : 'corner'}`);
    this.#drawing.show(byId('masks').hidden ? null : masks, this.#mask);
    const named = masks.map((mask) => {
      const of = masks.filter(({ kind }) => kind === mask.kind);
      const wrong = of.length > MOST ? `is one of ${of.length}, and a camera may have ${MOST}: delete some` : fault(mask.points, mask.kind) ?? wrongName(mask, masks) ?? this.#refused.get(mask);
      return { mask, name: `${mask.kind.title} ${of.indexOf(mask) + 1}`, wrong };
    });
    keep(this.#list, named, ({ name }) => name, ({ mask, name }) => this.#row(mask.kind, name), (row, { mask, wrong }) => {
      row.mask = mask;
      attribute(row.querySelector('button'), 'aria-pressed', String(mask === this.#mask));
      row.update();
      write(row.lastChild, wrong ?? '');
      show(row.lastChild, Boolean(wrong));
    });
    const wrong = named.find((each) => each.wrong);
    const error = wrong ? `${wrong.name} ${wrong.wrong}` : '';
    const said = error === this.#error ? words : error || words;
    this.#error = error;
    if (said) speak(said);
    const none = `# The camera ${this.#name} has no masks, lines and zones: remove its tables ${KINDS.map(({ table }) => `[[camera.${table}]]`).join(', ')}.`;
    // Lines and zones look at tracks.
    const file = this.#files.get(this.#name);
    const tracks = file?.track || !masks.some(({ others }) => others.name !== undefined) ? '' : '[camera.track]\n\n';
    const ready = this.#drafts.has(this.#name);
    for (const adder of this.#adders) adder.disabled = !ready;
    byId('masks-toml').value = wrong || !ready ? '' : tracks + text(masks) || none;
    byId('masks-copy').disabled = !byId('masks-toml').value;
    byId('masks-point').disabled = !this.#mask;
    write(byId('masks-copy'), 'Copy');
    show(this.#applier, Boolean(file?.writable));
    this.#applier.disabled = byId('masks-copy').disabled;
    write(this.#applier, 'Apply');
  }

  /** Makes the row of a mask; `update()` writes its values. */
  #row(kind, name) {
    const row = element('li');
    const fields = Object.entries(kind.fields).map(([key, make]) => make(key, name));
    for (const field of fields) {
      field.node.addEventListener('input', () => {
        this.#edited();
        row.mask.others = { ...row.mask.others, ...field.read() };
        this.#choose(row.mask);
      });
    }
    row.update = () => fields.forEach((field) => field.write(row.mask.others));
    const remove = button('Delete', () => this.#remove(row.mask));
    attribute(remove, 'aria-label', `Delete ${name.toLowerCase()}`);
    row.append(button(name, () => this.#choose(row.mask)), ...fields.map(({ node }) => node), remove, element('p', { className: 'reason' }));
    return row;
  }
}

/** Returns what makes fields for one name, or for a list of as many names as `titles`. */
function names(titles) {
  return (key, name) => {
    const one = titles.length === 1;
    const inputs = titles.map((title) => element('input', { spellcheck: false, autocomplete: 'off', maxLength: 64, placeholder: title, 'aria-label': one ? `Name of ${name.toLowerCase()}` : `Name of the ${title} side of ${name.toLowerCase()}` }));
    return {
      node: element('span', {}, ...inputs),
      read: () => ({ [key]: one ? inputs[0].value : inputs.map(({ value }) => value) }),
      write: ({ [key]: value }) => [value].flat().forEach((text, at) => inputs[at].value === text || (inputs[at].value = text)),
    };
  };
}

/** A field for the pixels below a privacy mask. */
function fill(key, name) {
  const choice = element('select', { 'aria-label': `Fill of ${name.toLowerCase()}` }, ...['black', 'mosaic', 'colour'].map((textContent) => element('option', { textContent })));
  const color = element('input', { type: 'color', value: '#808080', 'aria-label': `Colour of ${name.toLowerCase()}` });
  const rgb = () => [1, 3, 5].map((at) => parseInt(color.value.slice(at, at + 2), 16));
  return {
    node: element('span', {}, choice, color),
    read: () => ({ [key]: choice.value === 'colour' ? rgb() : choice.value }),
    write: ({ [key]: value }) => {
      const own = Array.isArray(value);
      choice.value = own ? 'colour' : value;
      if (own) color.value = `#${value.map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
      show(color, own);
    },
  };
}

/** A field for labels, separated by commas; one with a comma or a quote is a JSON string. */
function words(key, name) {
  const node = element('input', { placeholder: 'all labels', spellcheck: false, 'aria-label': `Labels of ${name.toLowerCase()}, separated by commas` });
  const label = (word) => {
    try {
      return String(JSON.parse(word));
    } catch {
      return word;
    }
  };
  const parts = () => (node.value.match(/\s*"(\\.|[^"\\])*"\s*|[^,]+/g) ?? []).map((word) => word.trim()).filter(Boolean);
  const read = () => ({ [key]: parts().map((word) => (word.startsWith('"') ? label(word) : word)) });
  return {
    node,
    read,
    // While a person types, the field keeps commas and spaces.
    write: (others) => {
      if (!same(read()[key], others[key])) node.value = others[key].map((word) => (/[,"]/.test(word) ? JSON.stringify(word) : word)).join(', ');
    },
  };
}
