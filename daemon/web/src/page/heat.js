// Where the tracked objects of each camera were: the bottom centres of their boxes, in a small grid, since the page was opened.

import { clock } from './format.js';

const [COLUMNS, ROWS] = [64, 36];
/** A longer time between two messages is no time at a place. */
const GAP_NS = 1e9;

export class Heat {
  #grid = null;
  #last = null;

  /** Adds a message in the pixels of the picture. One without tracks costs nothing. */
  add({ detections, frame, model, monotonic_ns }) {
    const tracked = detections.filter(({ track, box }) => track && box);
    // Of several models, only the first has tracks.
    if (tracked.length === 0 && this.#last?.model !== model.name) return;
    const span = this.#last ? monotonic_ns - this.#last.at : 0;
    this.#last = { at: monotonic_ns, model: model.name };
    if (!(span > 0 && span <= GAP_NS)) return;
    this.#grid ??= { columns: COLUMNS, rows: ROWS, seconds: new Float64Array(COLUMNS * ROWS), most: 0, since: clock(Date.now()) };
    const place = (value, side, cells) => Math.min(Math.max(Math.floor((value / side) * cells), 0), cells - 1);
    for (const { box } of tracked) {
      const at = place(box.x + box.width / 2, frame.width, COLUMNS) + COLUMNS * place(box.y + box.height, frame.height, ROWS);
      this.#grid.seconds[at] += span / 1e9;
      this.#grid.most = Math.max(this.#grid.most, this.#grid.seconds[at]);
    }
  }

  /** Returns the grid with the seconds in each cell; null without tracks. */
  get grid() {
    return this.#grid;
  }

  /** The frames are turned in another way, or the daemon has restarted. */
  clear() {
    this.#grid = this.#last = null;
  }
}
