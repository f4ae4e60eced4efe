// The recent past of each camera: one point per second from the status for the lines, and the timings of every frame of the
// last minute from the stream, for exact percentiles.

/** The stages of a frame, in their order. */
export const STAGES = ['capture', 'queue', 'preprocess', 'infer', 'postprocess', 'total'];
/** Points of a line: two minutes. */
export const POINTS = 120;
const RECENT_MS = 60_000;
/** A camera of 120 frames a second for a minute. */
const MOST_FRAMES = 7200;

export class History {
  #cameras = new Map();
  /** The longest time in each bucket of a stage, as the status has them. */
  #bounds = [];

  #of(name) {
    let camera = this.#cameras.get(name);
    if (!camera) {
      camera = { frames: [], first: 0, points: [], since: null };
      this.#cameras.set(name, camera);
    }
    return camera;
  }

  /** Adds a frame's timings and labels. */
  frame(message, now) {
    const camera = this.#of(message.camera);
    camera.since ??= now;
    camera.frames.push({ at: now, timings: message.timings_us, labels: message.detections.map((detection) => detection.label) });
    this.#forget(camera, now);
  }

  #forget(camera, now) {
    const old = (frame) => now - frame.at > RECENT_MS;
    while (camera.first < camera.frames.length && (old(camera.frames[camera.first]) || camera.frames.length - camera.first > MOST_FRAMES)) {
      camera.first += 1;
    }
    // Removed in batches, so that a frame does not cost a copy of all others.
    if (camera.first > 1000) {
      camera.frames.splice(0, camera.first);
      camera.first = 0;
    }
  }

  /** Adds a point to every line. */
  status(status, now) {
    const names = new Set(status.cameras.map((camera) => camera.name));
    for (const name of this.#cameras.keys()) if (!names.has(name)) this.#cameras.delete(name);
    for (const facts of status.cameras) {
      const camera = this.#of(facts.name);
      const buckets = facts.stages.total?.buckets;
      if (buckets) this.#bounds = buckets.map(([bound]) => bound);
      this.#forget(camera, now);
      // Of the last five seconds, so that the line shows what happens now.
      const ages = [];
      for (let at = camera.frames.length - 1; at >= camera.first && now - camera.frames[at].at < 5000; at -= 1) {
        ages.push(camera.frames[at].timings.total);
      }
      camera.points.push({ fps: facts.fps, age: quantile(ages.sort(rising), 0.99) });
      if (camera.points.length > POINTS) camera.points.shift();
    }
  }

  points(name) {
    return this.#of(name).points;
  }

  /** Returns the last minute of a camera's stage, in the form that the status has for the time since the start. */
  stage(name, stage) {
    const camera = this.#of(name);
    const times = [];
    for (let at = camera.first; at < camera.frames.length; at += 1) times.push(camera.frames[at].timings[stage]);
    times.sort(rising);
    const counts = this.#bounds.map(() => 0);
    for (const time of times) {
      const bucket = this.#bounds.findIndex((bound) => bound === null || time <= bound);
      if (bucket >= 0) counts[bucket] += 1;
    }
    return {
      count: times.length,
      p50_us: quantile(times, 0.5),
      p99_us: quantile(times, 0.99),
      max_us: times.at(-1) ?? null,
      buckets: this.#bounds.map((bound, at) => [bound, counts[at]]),
    };
  }

  /** Returns the seconds and frames that the recent past has, and by label its detections and the frames that have some. */
  detections(name, now) {
    const camera = this.#of(name);
    const labels = new Map();
    for (let at = camera.first; at < camera.frames.length; at += 1) {
      const frame = camera.frames[at];
      for (const label of frame.labels) {
        const counts = labels.get(label) ?? { detections: 0, frames: 0, last: null };
        counts.detections += 1;
        if (counts.last !== frame) counts.frames += 1;
        counts.last = frame;
        labels.set(label, counts);
      }
    }
    const seconds = camera.since === null ? 0 : Math.min(RECENT_MS, now - camera.since) / 1000;
    return { seconds, frames: camera.frames.length - camera.first, labels };
  }

  /** Returns the 99th percentile of the ages of all cameras' frames in the last minute. */
  ageOfAll() {
    const times = [];
    for (const camera of this.#cameras.values()) {
      for (let at = camera.first; at < camera.frames.length; at += 1) times.push(camera.frames[at].timings.total);
    }
    return quantile(times.sort(rising), 0.99);
  }

  /** Forgets everything, because the daemon restarted. */
  clear() {
    this.#cameras.clear();
  }
}

const rising = (a, b) => a - b;

function quantile(sorted, part) {
  if (sorted.length === 0) return null;
  return sorted[Math.min(sorted.length, Math.max(1, Math.ceil(sorted.length * part))) - 1];
}
