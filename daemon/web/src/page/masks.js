// Edits the masks of the chosen camera on its picture, and shows them as TOML for the configuration.

import { byId, element, write, attribute, show, keep, speak } from './dom.js';
import { ask } from './connection.js';
import { fraction, fault } from './shape.js';
import { Drawing } from './drawing.js';

const SQUARE = [[0.4, 0.4], [0.6, 0.4], [0.6, 0.6], [0.4, 0.6]];
/** What can be drawn: a table below [[camera]] with its points and its other keys, which have these defaults. */
const KINDS = [
  { table: 'privacy', title: 'Privacy mask', key: 'polygon', closed: true, least: 3, start: SQUARE, others: { fill: 'black' } },
  { table: 'ignore', title: 'Ignore mask', key: 'polygon', closed: true, least: 3, start: SQUARE, others: { classes: [] } },
];
/** The most tables of a kind, as in the daemon. */
const MOST = 32;

const button = (textContent, click) => {
  const node = element('button', { type: 'button', textContent });
  node.addEventListener('click', click);
  return node;
};
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

const toml = (value) => (Array.isArray(value) ? `[${value.map(toml).join(', ')}]` : JSON.stringify(value));

function table({ kind, points, others }) {
  const set = Object.entries(others).filter(([key, value]) => !same(value, kind.others[key]));
  return [`[[camera.${kind.table}]]`, ...[[kind.key, points], ...set].map(([key, value]) => `${key} = ${toml(value)}`)].join('\n');
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
  /** What the configuration had when that was loaded. */
  #loaded = new Map();
  /** Counts loads and edits, so that an answer that comes late changes nothing. */
  #turn = 0;
  #mask = null;
  #error = '';
  #list = byId('masks-list');
  #open = byId('masks-open');
  #adders = KINDS.map((kind) => button(`Add ${kind.title.toLowerCase()}`, () => this.#add(kind)));
  #drawing = new Drawing({
    changed: (words) => {
      this.#turn += 1;
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

  /** Takes the masks of the configuration in force, unless others were drawn and `instead` is not set. */
  async #load(instead = false) {
    const name = this.#name;
    const turn = (this.#turn += 1);
    const answer = await ask('api/v1/config').catch(() => null);
    const camera = answer?.body?.camera?.find((each) => each.name === name);
    if (turn !== this.#turn || name !== this.#name) return;
    note(camera ? '' : 'Cannot load the masks of the configuration: load them again.');
    if (!camera) return;
    const read = (kind, table) => {
      const sides = table.frame_size ?? [1, 1];
      const others = Object.fromEntries(Object.entries(kind.others).map(([key, value]) => [key, table[key] ?? value]));
      return { kind, points: table[kind.key].map((point) => point.map((part, axis) => fraction(part, sides[axis]))), others };
    };
    const masks = KINDS.flatMap((kind) => (camera[kind.table] ?? []).map((table) => read(kind, table)));
    const [now, before] = [text(masks), this.#loaded.get(name)];
    if (!instead && this.#drafts.has(name) && text(this.#masks) !== before) {
      if (now !== before) note('The configuration has other masks than when you began: load again to see them.');
      return;
    }
    this.#drafts.set(name, masks);
    this.#loaded.set(name, now);
    if (!byId('masks').hidden) this.#choose(this.#masks[0] ?? null);
  }

  #choose(mask) {
    this.#mask = mask;
    this.#show();
  }

  #add(kind) {
    this.#turn += 1;
    const mask = { kind, points: kind.start.map(([...point]) => point), others: { ...kind.others } };
    const before = (each) => KINDS.indexOf(each.kind) <= KINDS.indexOf(kind);
    this.#drafts.set(this.#name, [...this.#masks.filter(before), mask, ...this.#masks.filter((each) => !before(each))]);
    this.#choose(mask);
    this.#drawing.focus();
  }

  #remove(mask) {
    this.#turn += 1;
    this.#drafts.set(this.#name, this.#masks.filter((each) => each !== mask));
    this.#choose(this.#masks[0] ?? null);
    byId('masks-title').focus();
  }

  /** Shows everything, and says `words` unless there is a new error to say. */
  #show(words = '') {
    const masks = this.#masks;
    write(byId('masks-title'), `Masks of ${this.#name}`);
    this.#drawing.show(byId('masks').hidden ? null : masks, this.#mask);
    const named = masks.map((mask) => {
      const of = masks.filter(({ kind }) => kind === mask.kind);
      const wrong = of.length > MOST ? `is one of ${of.length}, and a camera may have ${MOST}: delete some` : fault(mask.points, mask.kind);
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
    const none = `# The camera ${this.#name} has no masks: remove its tables [[camera.privacy]] and [[camera.ignore]].`;
    const ready = this.#drafts.has(this.#name);
    for (const adder of this.#adders) adder.disabled = !ready;
    byId('masks-toml').value = wrong || !ready ? '' : text(masks) || none;
    byId('masks-copy').disabled = !byId('masks-toml').value;
    byId('masks-point').disabled = !this.#mask;
    write(byId('masks-copy'), 'Copy');
  }

  /** Makes the row of a mask; `update()` writes its values. */
  #row(kind, name) {
    const row = element('li');
    const fields = Object.keys(kind.others).map((key) => (key === 'fill' ? fill : words)(key, name));
    for (const field of fields) {
      field.node.addEventListener('input', () => {
        this.#turn += 1;
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
