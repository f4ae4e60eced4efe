// The lines and zones of each camera, as the configuration in force has them, with the totals of their events.

import { ask } from './connection.js';
import { fraction } from './shape.js';

/** The corners of a zone without a polygon. */
export const WHOLE = [[0, 0], [1, 0], [1, 1], [0, 1]];

/** Returns a table's points as fractions of the frame. */
export function fractions(points, { frame_size: sides = [1, 1] }) {
  return points.map((point) => point.map((part, axis) => fraction(part, sides[axis])));
}

export class Rules {
  /** Lines and zones by camera. */
  #cameras = new Map();
  #totals = new Map();
  /** The configuration that was read. */
  #read = '';
  #changed;

  /** Calls `changed()` when lines, zones or totals have changed. */
  constructor(changed) {
    this.#changed = changed;
  }

  /** Reads the configuration after a start or a reload. */
  async status({ started_at, reloads }) {
    const wanted = `${started_at} ${reloads.applied}`;
    if (wanted === this.#read) return;
    const before = this.#read;
    this.#read = wanted;
    const answer = await ask('api/v1/config').catch(() => null);
    if (this.#read !== wanted) return;
    if (!answer?.ok) return void (this.#read = before);
    const read = ({ line = [], zone = [] }) => [
      ...line.map((table) => ({ name: table.name, points: fractions(table.points, table), sides: table.sides })),
      ...zone.map((table) => ({ name: table.name, points: table.polygon.length > 0 ? fractions(table.polygon, table) : WHOLE })),
    ];
    this.#cameras = new Map((answer.body.camera ?? []).map((camera) => [camera.name, read(camera)]));
    this.#changed();
  }

  /** Replaces all totals. */
  reset(list) {
    this.#totals.clear();
    for (const each of list) this.#take(each, each);
    this.#changed();
  }

  /** Takes the totals of an event; one of a rule that is gone has none. */
  count(event) {
    this.#take(event, event.totals);
    this.#changed();
  }

  #take({ camera, rule, kind, to }, totals) {
    this.#totals.set([camera, rule, kind, to].join('\n'), totals);
  }

  #of(...key) {
    return this.#totals.get(key.join('\n'));
  }

  /** Returns a camera's lines, with `sides` and `counts` of the crossings to each, and its zones, with the number `inside` and of `visits`. */
  of(camera) {
    return (this.#cameras.get(camera) ?? []).map((rule) => {
      if (rule.sides) return { ...rule, counts: rule.sides.map((side) => this.#of(camera, rule.name, 'line', side)?.begun) };
      const totals = this.#of(camera, rule.name, 'zone', undefined);
      return { ...rule, inside: totals?.inside, visits: totals?.begun };
    });
  }

  get any() {
    return [...this.#cameras.values()].some((rules) => rules.length > 0);
  }
}
