// The cameras as tiles: picture, rate, age, detections. Choosing one shows its details in the inspector.

import { byId, element, write, attribute, show, keep } from './dom.js';
import { count, millis, percent, labels } from './format.js';
import { Screen, Pictures } from './pictures.js';
import { Filter, MANY } from './filter.js';

const WORDS = {
  opening: ['Opening', 'warn'],
  streaming: ['Streaming', 'ok'],
  waiting: ['Waiting', 'warn'],
  failed: ['Failed', 'bad'],
  ended: ['Ended', 'quiet'],
};

/** Returns the word and the level of a camera's phase. */
export function phaseOf(camera) {
  return WORDS[camera.phase] ?? [camera.phase, 'quiet'];
}

export function droppedInAll(camera) {
  return Object.values(camera.dropped).reduce((sum, frames) => sum + frames, 0);
}

/** Returns the share of frames that were dropped. */
export function droppedPart(camera) {
  const dropped = droppedInAll(camera);
  return dropped === 0 ? 0 : dropped / (dropped + camera.published);
}

/** Returns the message of each model in a message that joins several. */
function byModel(message) {
  if (!message.models) return [message];
  const own = (name) => message.detections.filter((detection) => detection.model === name);
  return message.models.map((model, at) => {
    const attributes = at === 0 ? message.attributes : model.attributes;
    return { ...message, model, attributes, detections: own(model.name) };
  });
}

/** A share of dropped frames that is more than this matters. */
const DROPPED = 0.01;
/** The states of the filter. */
const STATES = {
  trouble: (camera) => camera.phase === 'waiting' || camera.phase === 'failed',
  dropping: (camera) => droppedPart(camera) > DROPPED,
  streaming: (camera) => camera.phase === 'streaming',
};

export class Cameras {
  #tiles = new Map();
  #cameras = [];
  #history = null;
  #filter = new Filter(STATES, () => this.#arrange());
  #pictures = new Pictures();
  #list = byId('cameras');
  #large = new Picture(byId('large'));
  #chosen = null;
  #rules;
  #choose;

  /** Draws `rules` on the pictures; calls `choose(name, byHand)` when another camera is chosen. */
  constructor(rules, choose) {
    this.#rules = rules;
    this.#choose = choose;
    const large = byId('large');
    const enlarge = byId('enlarge');
    show(enlarge, document.fullscreenEnabled === true);
    enlarge.addEventListener('click', () => (document.fullscreenElement ? document.exitFullscreen() : large.requestFullscreen()));
    document.addEventListener('fullscreenchange', () => attribute(enlarge, 'aria-label', document.fullscreenElement ? 'Leave full screen' : 'Full screen'));
    window.addEventListener('resize', () => this.#rows());
  }

  status(status, history) {
    const { cameras } = status;
    this.#cameras = cameras;
    this.#history = history;
    show(byId('no-cameras'), cameras.length === 0);
    show(byId('large'), cameras.length > 0);
    // A single camera is shown large already.
    show(this.#list, cameras.length > 1);
    keep(this.#list, cameras, (camera) => camera.name, (camera) => this.#make(camera), (_, camera) => this.#update(camera));
    for (const [name, tile] of this.#tiles) {
      if (tile.node.isConnected) continue;
      tile.screen.detach(tile.picture.canvas);
      this.#pictures.remove(tile.screen);
      this.#tiles.delete(name);
    }
    if (!this.#tiles.has(this.#chosen)) this.#pick((cameras.find((camera) => this.#filter.passes(camera)) ?? cameras[0])?.name ?? null, false);
    const chosen = cameras.find((camera) => camera.name === this.#chosen);
    if (chosen) this.#large.show(chosen, history);
    show(byId('zones'), this.#rules.of(this.#chosen).length > 0);
    show(byId('heat'), history.tracks(this.#chosen) !== null);
    this.#arrange();
    this.#pictures.pump();
  }

  message(message) {
    const screen = this.#tiles.get(message.camera)?.screen;
    if (screen) for (const each of byModel(message)) screen.message(each);
  }

  /** The daemon does not answer: marks all pictures as old. */
  lost() {
    for (const tile of this.#tiles.values()) {
      tile.screen.streaming = false;
      tile.picture.stale(true);
    }
    this.#large.stale(true);
  }

  /** The daemon restarted: forgets the messages of the old one. */
  clear() {
    for (const tile of this.#tiles.values()) tile.screen.forget();
  }

  /** Draws the pictures again, because the user chose another form. */
  redraw() {
    for (const tile of this.#tiles.values()) tile.screen.draw();
  }

  /** Chooses a camera, as a press on its tile does. */
  choose(name) {
    if (this.#tiles.has(name)) this.#pick(name, true);
  }

  #pick(name, byHand) {
    this.#tiles.get(this.#chosen)?.screen.detach(this.#large.canvas);
    this.#chosen = name;
    this.#tiles.get(name)?.screen.attach(this.#large.canvas);
    for (const [other, tile] of this.#tiles) attribute(tile.choose, 'aria-pressed', String(other === name));
    this.#choose(name, byHand);
  }

  #make(camera) {
    const choose = element('button', { type: 'button', className: 'choose name', textContent: camera.name });
    const node = element('li', { className: 'camera' }, ...pictureParts(choose));
    const tile = { node, choose, screen: new Screen(camera.name, this.#rules), picture: new Picture(node) };
    choose.addEventListener('click', () => this.#pick(camera.name, true));
    attribute(choose, 'aria-pressed', 'false');
    this.#tiles.set(camera.name, tile);
    this.#pictures.add(tile.screen);
    tile.screen.attach(tile.picture.canvas);
    return node;
  }

  #update(camera) {
    const { screen } = this.#tiles.get(camera.name);
    screen.streaming = camera.phase === 'streaming';
    screen.turn(camera);
  }

  /** Shows the tiles of the cameras that pass the filter. A hidden one is not in sight, so nothing requests its picture. */
  #arrange() {
    const shown = this.#cameras.filter((camera) => this.#filter.passes(camera));
    for (const camera of shown) this.#tiles.get(camera.name).picture.show(camera, this.#history);
    const names = new Set(shown.map((camera) => camera.name));
    for (const [name, tile] of this.#tiles) show(tile.node, names.has(name));
    this.#list.classList.toggle('compact', shown.length >= MANY);
    this.#filter.show(shown.length, this.#cameras.length);
    this.#rows();
  }

  /** Spreads the tiles evenly over the rows, so that the last row has no hole. */
  #rows() {
    const style = getComputedStyle(this.#list);
    const [least, gap, whole] = ['--least', '--gap', '--whole'].map((name) => parseFloat(style.getPropertyValue(name)));
    // On a phone, a tile with a reason has a row of its own.
    const nodes = [...this.#list.children].filter((node) => !node.hidden && !(whole && node.dataset.trouble));
    const most = Math.max(1, Math.floor((this.#list.clientWidth + gap) / (least + gap)));
    const rows = Math.ceil(nodes.length / most);
    const base = Math.floor(nodes.length / rows);
    const longer = (nodes.length % rows) * (base + 1);
    nodes.forEach((node, at) => {
      const tiles = at < longer ? base + 1 : base;
      // Two cameras on a wide screen do not take more height than the large picture.
      node.style.setProperty('--row', rows === 1 ? Math.max(tiles, Math.ceil(most / 2)) : tiles);
    });
  }
}

function pictureParts(name) {
  const notice = element('p', { className: 'notice', hidden: true }, element('b'), element('span'));
  const ground = element('div', { className: 'screen' }, element('canvas', { role: 'img' }), notice);
  const [rate, sees, numbers] = ['rate', 'sees', 'numbers'].map((className) => element('span', { className }));
  return [ground, element('div', { className: 'label' }, element('div', {}, name, rate), element('div', {}, sees, numbers))];
}

/** A picture with its texts. */
class Picture {
  constructor(node) {
    this.node = node;
    this.canvas = node.querySelector('canvas');
  }

  stale(is) {
    this.#part('screen').classList.toggle('stale', is);
  }

  show(camera, history) {
    const streaming = camera.phase === 'streaming';
    const [word, level] = phaseOf(camera);
    this.stale(!streaming);
    attribute(this.node, 'data-trouble', camera.reason ? level : null);
    const notice = this.#part('notice');
    show(notice, !streaming);
    attribute(notice, 'data-level', level);
    write(notice.firstChild, word);
    write(notice.lastChild, camera.reason ?? '');
    attribute(this.canvas, 'aria-label', streaming ? `Live picture of ${camera.name}` : `${camera.name}: no picture`);
    write(this.#part('name'), camera.name);
    // A compact tile has no room for the reason. In a tile the name is the button that covers it.
    attribute(this.#part('name'), 'title', camera.reason || null);
    this.#part('rate').replaceChildren(...(streaming ? [camera.fps.toFixed(1), element('small', { textContent: ' fps' })] : []));
    // The notice has the state of a camera without a picture.
    const seen = streaming ? labels(camera.labels) || 'nothing' : '';
    write(this.#part('sees'), seen);
    attribute(this.#part('sees'), 'title', seen);
    this.#part('numbers').replaceChildren(...numbers(camera, history.points(camera.name).at(-1)?.age ?? null));
  }

  #part(name) {
    return this.node.querySelector(`.${name}`);
  }
}

/** Returns age and drops, if there are any; small tiles show only drops that matter. */
function numbers(camera, age) {
  const part = droppedPart(camera);
  const parts = [];
  if (camera.phase === 'streaming' && age !== null) parts.push(element('span', { textContent: `age p99 ${millis(age)} ms` }));
  if (part > 0) {
    const textContent = `${percent(part)} dropped`;
    parts.push(element('span', { className: part > DROPPED ? 'warn' : 'minor', textContent, title: `${count(droppedInAll(camera))} frames` }));
  }
  return parts;
}
