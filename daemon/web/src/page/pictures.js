// The cameras' pictures, each with the boxes of its own frame.
//
// A picture is requested when the one before it has arrived, so that a slow link or phone gets fewer pictures instead of older
// ones. Only a few requests run at a time, because a browser has six connections to a host and the rest of the page needs some.
// The stream's messages are kept for a while and matched to pictures by sequence number.

import { byId, element } from './dom.js';
import { shows } from './settings.js';
import { fitting, drawDetections, drawRules, drawHeat, turned } from './overlay.js';
import { Heat } from './heat.js';

/** Requests for pictures at a time. */
const SLOTS = 4;
const TIMEOUT_MS = 5000;
/** The shortest interval between pictures of a camera; the daemon's default limit. */
const INTERVAL_MS = 90;
/** Pause after a failed request. */
const AFTER_TROUBLE_MS = 2000;
/** Messages of a model that are kept for pictures that have not arrived and for tails: two seconds at 60 frames per second. */
const MOST_MESSAGES = 120;
/** The boxes of a camera's other models are drawn on a picture if their frame was captured within this time before it. */
const APART_NS = 2e9;
/** How long a picture waits for its message. */
const MESSAGE_MS = 150;

/** One camera's picture, on any number of canvases. */
export class Screen {
  /** Whether the camera gives frames. */
  streaming = false;
  /** Called when a canvas has come into sight. */
  seen = () => {};
  underWay = false;
  next = 0;
  /** How pictures are turned. */
  #turn = { rotate: 0, flip: null };
  #canvases = new Map();
  #picture = null;
  /** By model, so that a fast one does not push out those of a slow one. */
  #messages = new Map();
  #waiting = null;
  #due = false;
  #rules;
  #heat = new Heat();

  constructor(name, rules) {
    this.name = name;
    this.#rules = rules;
  }

  /** Shows the picture on `canvas` too. */
  attach(canvas) {
    const size = new ResizeObserver(() => this.#fit(canvas));
    // A busy browser reports several changes at once; the last one is current.
    const sight = new IntersectionObserver((changes) => this.#see(canvas, changes.at(-1).isIntersecting), { rootMargin: '100px' });
    this.#canvases.set(canvas, { size, sight, visible: false });
    size.observe(canvas);
    sight.observe(canvas);
    this.draw();
  }

  detach(canvas) {
    const face = this.#canvases.get(canvas);
    face?.size.disconnect();
    face?.sight.disconnect();
    this.#canvases.delete(canvas);
    canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height);
  }

  /** Whether a canvas is in sight. */
  get visible() {
    return [...this.#canvases.values()].some((face) => face.visible);
  }

  /** The message about the newest frame. */
  get latest() {
    const newest = [...this.#messages.values()].map((messages) => messages.at(-1));
    return newest.reduce((a, b) => (a && a.sequence >= b.sequence ? a : b), null);
  }

  /** Takes the turn of the pictures from the camera's status. */
  turn(camera) {
    if (this.#turn.rotate !== camera.rotate || this.#turn.flip !== camera.flip) this.forget();
    this.#turn = camera;
  }

  message(message) {
    const messages = this.#messages.get(message.model.name) ?? [];
    this.#messages.set(message.model.name, messages);
    messages.push(turned(message, this.#turn));
    this.#heat.add(messages.at(-1));
    if (messages.length > MOST_MESSAGES) messages.shift();
    if (this.#waiting && message.sequence >= this.#waiting.sequence) this.#take();
    // Without a picture, the boxes are drawn alone. Another model's may come after its picture is shown.
    if (!this.#waiting && (!this.#picture || this.#picture.sequence === message.sequence)) this.draw();
  }

  /** Takes a picture; `sequence` is the number of its message, or null if there is none for it. */
  picture(bitmap, sequence) {
    this.#waiting?.bitmap.close();
    clearTimeout(this.#waiting?.timer);
    const late = this.latest && sequence !== null && this.latest.sequence < sequence;
    this.#waiting = { bitmap, sequence, timer: late ? setTimeout(() => this.#take(), MESSAGE_MS) : 0 };
    if (!late) this.#take();
  }

  /** Forgets the messages, because a restarted daemon counts from 0. */
  forget() {
    this.#heat.clear();
    this.#messages.clear();
  }

  #take() {
    const { bitmap, sequence, timer } = this.#waiting;
    clearTimeout(timer);
    this.#waiting = null;
    this.#picture?.bitmap.close();
    this.#picture = { bitmap, sequence };
    this.draw();
  }

  /** Returns the picture's message, if it has one, and after it the newest messages of the camera's other models up to then. */
  #shown() {
    const sequence = this.#picture ? this.#picture.sequence : this.latest?.sequence;
    const upTo = [...this.#messages.values()].map((messages) => messages.findLast((message) => message.sequence <= sequence));
    const own = upTo.find((message) => message?.sequence === sequence);
    if (!own) return [];
    return [own, ...upTo.filter((message) => message && message !== own && own.monotonic_ns - message.monotonic_ns <= APART_NS)];
  }

  #fit(canvas) {
    const unit = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * unit);
    const height = Math.round(canvas.clientHeight * unit);
    if (width === canvas.width && height === canvas.height) return;
    canvas.width = width;
    canvas.height = height;
    // Resizing clears the canvas, so it is drawn before the page is painted.
    this.#paint(canvas);
  }

  #see(canvas, visible) {
    const face = this.#canvases.get(canvas);
    if (face) face.visible = visible;
    if (!visible) return;
    this.#paint(canvas);
    this.seen();
  }

  /** Draws every canvas in sight before the page is painted. */
  draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      for (const [canvas, { visible }] of this.#canvases) if (visible) this.#paint(canvas);
    });
  }

  #paint(canvas) {
    const context = canvas.getContext('2d');
    context.clearRect(0, 0, canvas.width, canvas.height);
    const messages = this.#shown();
    const message = messages[0];
    const bitmap = this.#picture?.bitmap;
    const width = message?.frame.width ?? bitmap?.width;
    const height = message?.frame.height ?? bitmap?.height;
    if (!width || !canvas.width) return;
    // A preview may have another shape than the model's frame: cameras squeeze the same view into a small stream.
    const place = fitting(canvas, width, height);
    if (bitmap) context.drawImage(bitmap, place.left, place.top, width * place.scale, height * place.scale);
    const unit = window.devicePixelRatio || 1;
    if (shows('heat') && this.#heat.grid) drawHeat(context, this.#heat.grid, place, { width, height }, unit);
    // While shapes are drawn on the large picture, those of the configuration would be in the way.
    const edited = canvas.closest('#large') && !byId('masks').hidden;
    if (shows('zones') && !edited) drawRules(context, this.#rules.of(this.name), this.#turn, { width, height }, place, unit);
    const detections = messages.flatMap((each) => each.detections);
    for (const each of messages) {
      drawDetections(context, each, place, unit, this.#messages.get(each.model.name));
    }
    canvas.dataset.sequence = String(this.#picture?.sequence ?? message?.sequence ?? '');
    canvas.dataset.boxes = String(detections.length);
    if (bitmap && detections.length > 0 && performance.getEntriesByName('boxes').length === 0) performance.mark('boxes');
  }
}

/** Requests the pictures of all screens in turn. */
export class Pictures {
  #screens = new Set();
  #underWay = 0;
  #timer = 0;

  constructor() {
    document.addEventListener('visibilitychange', () => this.pump());
  }

  add(screen) {
    this.#screens.add(screen);
    screen.seen = () => this.pump();
  }

  remove(screen) {
    this.#screens.delete(screen);
  }

  /** Requests the pictures that are due, and schedules itself for the next one. */
  pump() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    const now = performance.now();
    const open = [...this.#screens].filter((screen) => screen.streaming && screen.visible && !screen.underWay);
    open.sort((a, b) => a.next - b.next);
    for (const screen of open) {
      if (this.#underWay >= SLOTS) return;
      if (screen.next > now) {
        this.#timer = setTimeout(() => this.pump(), screen.next - now);
        return;
      }
      this.#ask(screen);
    }
  }

  async #ask(screen) {
    this.#underWay += 1;
    screen.underWay = true;
    screen.next = performance.now() + INTERVAL_MS;
    try {
      const path = `cameras/${encodeURIComponent(screen.name)}/snapshot.jpg`;
      const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (!response.ok) throw new Error(`${path}: ${response.status}`);
      const sequence = response.headers.get('X-Visiond-Sequence');
      const bitmap = await createImageBitmap(await response.blob());
      if (this.#screens.has(screen)) screen.picture(bitmap, sequence === null ? null : Number(sequence));
      else bitmap.close();
    } catch {
      screen.next = performance.now() + AFTER_TROUBLE_MS;
    } finally {
      this.#underWay -= 1;
      screen.underWay = false;
      this.pump();
    }
  }
}
