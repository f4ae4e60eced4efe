// Which cameras have a tile: by name and by state. The page's address has the filter, so that a bookmark keeps it.

import { byId, write, show } from './dom.js';

/** The filter shows from this number of cameras on, and tiles are compact. */
export const MANY = 12;

export class Filter {
  #name = byId('filter-name');
  #state = byId('filter-state');
  #states;

  /** `states` has, by the value of an option, whether a camera is in that state. Calls `changed()` when the user changes the filter. */
  constructor(states, changed) {
    this.#states = states;
    const asked = new URL(location.href).searchParams;
    this.#name.value = asked.get('camera') ?? '';
    const state = asked.get('state');
    if (Object.hasOwn(states, state)) this.#state.value = state;
    const used = () => {
      changed();
      this.#store();
    };
    for (const field of [this.#name, this.#state]) field.addEventListener('input', used);
    byId('filter-none').addEventListener('click', () => {
      this.#name.value = this.#state.value = '';
      this.#name.focus();
      used();
    });
  }

  /** Whether the camera's name has every word, and the camera is in the chosen state. */
  passes(camera) {
    const words = this.#name.value.toLowerCase().split(/\s+/);
    const name = camera.name.toLowerCase();
    return words.every((word) => name.includes(word)) && (this.#states[this.#state.value]?.(camera) ?? true);
  }

  /** Shows how many cameras pass. A filter of a bookmark shows with few cameras too, and stays when it is cleared. */
  show(shown, all) {
    if (all >= MANY || this.#name.value || this.#state.value) show(byId('filter'), true);
    write(byId('filter-count'), `${shown} of ${all} cameras`);
    show(byId('no-match'), shown === 0 && all > 0);
  }

  #store() {
    const url = new URL(location.href);
    for (const [key, { value }] of [['camera', this.#name], ['state', this.#state]]) {
      if (value) url.searchParams.set(key, value);
      else url.searchParams.delete(key);
    }
    history.replaceState(null, '', url);
  }
}
