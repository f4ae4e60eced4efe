// What comes from the daemon: its status every second, and every message as it is published. Both come back by themselves.

/** From one status to the next. */
const STATUS_MS = 1000;
/** A status that takes longer is none. */
const PATIENCE_MS = 4000;
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 2000;
/** A tab that nobody sees lets go of the stream after so long. */
const HIDDEN_MS = 10_000;

/** Asks for JSON. An answer that asks for the token sends the page to where it is given. */
export async function ask(path, options = {}) {
  const signal = AbortSignal.timeout(options.patience ?? PATIENCE_MS);
  const response = await fetch(path, { cache: 'no-store', signal, ...options });
  if (response.status === 401) location.reload();
  const body = await response.json().catch(() => null);
  return { ok: response.ok, status: response.status, body };
}

/** Sleeps; ends early when the tab is looked at again. */
function pause(ms) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', end);
      done();
    };
    const timer = setTimeout(end, ms);
    document.addEventListener('visibilitychange', end);
  });
}

/** Hands on each status; `lost(sentence, since)` while there is none. */
export async function followStatus(arrived, lost) {
  let since = null;
  for (;;) {
    const began = performance.now();
    let trouble = null;
    let answer = null;
    try {
      answer = await ask('/api/v1/status');
      if (!answer.ok || !answer.body) trouble = answer.body?.detail ?? `The status was answered with ${answer.status}`;
    } catch {
      trouble = 'No answer from visiond';
    }
    if (trouble === null) {
      since = null;
      arrived(answer.body);
    } else {
      since ??= Date.now();
      lost(trouble, since);
    }
    const wait = document.hidden ? 5 * STATUS_MS : trouble === null ? STATUS_MS : STATUS_MS / 2;
    await pause(Math.max(100, wait - (performance.now() - began)));
  }
}

/** The messages of all cameras. */
export class Stream {
  #socket = null;
  #retry = FIRST_RETRY_MS;
  #timer = 0;
  #message;

  constructor(message) {
    this.#message = message;
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.#timer);
      if (document.hidden) this.#timer = setTimeout(() => this.#close(), HIDDEN_MS);
      else this.now();
    });
    this.#open();
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Opens it if it is not: something else was just answered. */
  now() {
    if (!this.#socket && !document.hidden) this.#open();
  }

  #open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}/api/v1/stream`);
    this.#socket = socket;
    socket.onopen = () => {
      this.#retry = FIRST_RETRY_MS;
    };
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.camera && message.detections) this.#message(message);
    };
    socket.onclose = () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      // Spread, so that not every page comes at once to a daemon that has just come back.
      if (!document.hidden) this.#timer = setTimeout(() => this.#open(), this.#retry * (0.5 + Math.random()));
      this.#retry = Math.min(this.#retry * 2, LAST_RETRY_MS);
    };
  }

  #close() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }
}
