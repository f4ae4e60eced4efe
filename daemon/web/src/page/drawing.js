// Shapes on a camera's picture, whose points are moved, added and deleted by mouse, touch and keyboard.
//
// A point is in fractions of the camera's own frame. The picture may be turned, so pointers and keys are turned back.

import { byId, write, attribute, keep, drawn, path } from './dom.js';
import { turning } from './overlay.js';
import { fraction, edges, middle } from './shape.js';

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
/** The circles of a point, and their radius on the screen: a finger hits the larger one. */
const POINT = [['ring', 12], ['dot', 5]];

export class Drawing {
  #svg = byId('shapes');
  #frame = null;
  #turning = null;
  #shapes = [];
  #shape = null;
  /** The point that was used last. */
  #at = 0;
  /** From the pointer to the point that it drags. */
  #grip = null;
  #events;

  /** Calls `changed(words)` when points changed, with words for screen readers, `choose(shape)` when another shape is pressed, and `leave()` on Escape. */
  constructor(events) {
    this.#events = events;
    const svg = this.#svg;
    // A finger elsewhere on the picture scrolls the page. Browsers do not agree on `touch-action` of parts of a drawing.
    svg.addEventListener('touchstart', (event) => event.target.closest('.edge, [role=button]') && event.preventDefault(), { passive: false });
    svg.addEventListener('pointerdown', (event) => this.#down(event));
    svg.addEventListener('pointermove', (event) => {
      if (!this.#grip) return;
      const [x, y] = this.#under(event);
      this.#move(x + this.#grip[0], y + this.#grip[1]);
    });
    svg.addEventListener('lostpointercapture', () => (this.#grip = null));
    svg.addEventListener('focusin', ({ target }) => (this.#at = Number(target.dataset.key)));
    svg.addEventListener('keydown', (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(svg);
  }

  /** Takes the size of the camera's frames, and how its picture is turned. */
  fit({ width, height, rotate, flip }) {
    const frame = [width, height, rotate, flip].join();
    if (frame === this.#frame || !width) return;
    this.#frame = frame;
    this.#turning = { ...turning({ width, height, rotate, flip }), sides: [width, height] };
    attribute(this.#svg, 'viewBox', `0 0 ${this.#turning.width} ${this.#turning.height}`);
    this.#draw();
  }

  /** Shows shapes, each with `points` and a `kind`; `shape` is the one whose points can be changed. No shapes hide the drawing. */
  show(shapes, shape) {
    this.#shapes = shapes ?? [];
    if (shape !== this.#shape) this.#at = 0;
    this.#shape = shape;
    attribute(this.#svg, 'hidden', shapes ? null : '');
    this.#draw();
  }

  /** Focuses the point that was used last. */
  focus() {
    this.#svg.lastChild.children[this.#at]?.focus();
  }

  /** Deletes the point that was used last, but not a shape's only one. */
  remove() {
    const points = this.#shape?.points ?? [];
    if (points.length < 2) return;
    points.splice(this.#at, 1);
    this.#at = Math.min(this.#at, points.length - 1);
    this.#events.changed(`Deleted, ${points.length} left`);
    this.focus();
  }

  #down(event) {
    if (event.button !== 0 || this.#grip) return;
    const { target } = event;
    const outline = this.#shapes[target.dataset.key];
    const [x, y] = this.#under(event);
    const point = target.closest('[role=button]');
    if (point) this.#at = Number(point.dataset.key);
    else if (target.matches('.edge')) this.#add(this.#nearest([x, y]) + 1, x, y);
    else return outline && this.#events.choose(outline);
    event.preventDefault();
    this.focus();
    this.#svg.setPointerCapture(event.pointerId);
    const [left, top] = this.#place(this.#shape.points[this.#at]);
    this.#grip = [left - x, top - y];
  }

  #key(event) {
    const arrow = ARROWS[event.key];
    const step = event.shiftKey ? 10 : 1;
    const [x, y] = this.#place(this.#shape.points[this.#at]);
    if (arrow) this.#move(x + arrow[0] * step, y + arrow[1] * step);
    else if (event.key === 'Delete' || event.key === 'Backspace') this.remove();
    else if (event.key === 'Enter' || event.key === ' ') {
      const { points } = this.#shape;
      const [left, top] = this.#place(points[(this.#at + 1) % points.length]);
      this.#add(this.#at + 1, (x + left) / 2, (y + top) / 2);
      this.focus();
    } else if (event.key === 'Escape') this.#events.leave();
    else return;
    event.preventDefault();
  }

  #add(at, x, y) {
    this.#shape.points.splice(at, 0, [0, 0]);
    this.#at = at;
    this.#move(x, y);
  }

  /** Moves the point to the nearest pixel of the picture. */
  #move(x, y) {
    const { width, height, sides, from } = this.#turning;
    const inside = (value, most) => Math.min(Math.max(Math.round(value), 0), most);
    const pixel = from(inside(x, width), inside(y, height));
    this.#shape.points[this.#at] = pixel.map((part, axis) => fraction(part, sides[axis]));
    this.#events.changed(this.#where(this.#at));
  }

  /** Returns where a pointer is on the picture. */
  #under({ clientX, clientY }) {
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(this.#svg.getScreenCTM().inverse());
    return [x, y];
  }

  /** Returns where a point is on the picture. */
  #place([x, y]) {
    const { sides, to } = this.#turning;
    return to(x * sides[0], y * sides[1]);
  }

  /** Returns the number of the edge that is nearest to a place on the picture. */
  #nearest([x, y]) {
    const far = edges(this.#shape.points.map((point) => this.#place(point)), this.#shape.kind.closed).map(([[a, b], [c, d]]) => {
      const part = ((x - a) * (c - a) + (y - b) * (d - b)) / ((c - a) ** 2 + (d - b) ** 2 || 1);
      const along = Math.min(Math.max(part, 0), 1);
      return Math.hypot(a + along * (c - a) - x, b + along * (d - b) - y);
    });
    return far.indexOf(Math.min(...far));
  }

  #where(at) {
    return this.#place(this.#shape.points[at]).map(Math.round).join(', ');
  }

  #draw() {
    // Without a place on the screen, as while it is hidden, there is no scale.
    const scale = this.#svg.getScreenCTM()?.a;
    if (!this.#turning || !scale) return;
    const [outlines, edge, sides, points] = this.#svg.children;
    const line = ({ points, kind }) => points.map((point, at) => `${at ? 'L' : 'M'}${this.#place(point).join(' ')}`).join('') + (kind.closed ? 'Z' : '');
    keep(outlines, this.#shapes.map((shape, at) => [at, shape]), ([at]) => at, () => path('', ''), (node, [, shape]) => {
      attribute(node, 'class', `${shape.kind.table}${shape === this.#shape ? ' chosen' : ''}`);
      attribute(node, 'd', line(shape));
    });
    const all = this.#shape?.points ?? [];
    attribute(edge, 'd', this.#shape ? line(this.#shape) : '');
    const names = this.#shape?.others.sides ?? [];
    keep(sides, all.length > 1 ? names.slice(0, 2) : [], (side) => names.indexOf(side), () => drawn('text', {}), (node, side) => {
      write(node, side);
      const { at, left } = middle(all.map(([x, y]) => [x * this.#turning.sides[0], y * this.#turning.sides[1]]));
      const far = (names.indexOf(side) ? -26 : 26) / scale;
      const [x, y] = this.#turning.to(at[0] + left[0] * far, at[1] + left[1] * far);
      Object.entries({ x, y, 'font-size': 13 / scale, 'stroke-width': 3 / scale }).forEach(([name, value]) => attribute(node, name, String(value)));
    });
    const make = () => drawn('g', { role: 'button', tabindex: 0 }, ...POINT.map(([name]) => drawn('circle', { class: name })));
    keep(points, all.map((point, at) => [at, point]), ([at]) => at, make, (node, [at, point]) => {
      const [cx, cy] = this.#place(point);
      [...node.children].forEach((part, at) => Object.entries({ cx, cy, r: POINT[at][1] / scale }).forEach(([name, value]) => attribute(part, name, String(value))));
      attribute(node, 'aria-label', `${this.#shape.kind.closed ? 'Corner' : 'Point'} ${at + 1} of ${all.length}: ${this.#where(at)}`);
    });
  }
}
