//! Measures a TensorRT engine alone, without camera, postprocess and message.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use serde::Serialize;
use visiond_capture::Buffers;
use visiond_engine::detector::{Detection, Detector, DetectorError};
use visiond_engine::engine::EngineError;
use visiond_engine::tensorrt::{EngineBenchmark, Launch, RunTime, TrtEngine};
use visiond_frames::frame::Frame;
use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_service::loaded_model::LoadedModel;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

use super::frames::FrameWriter;
use super::measurement::{Figures, Iterations};
use crate::output::thread_error;

/// Number of runs that the layer times are averaged over.
const LAYER_RUNS: u64 = 50;

/// Each launch method gets this fraction (1/4) of a benchmark's duration.
const SHARE_OF_TIME: u32 = 4;

/// The measurements of a bare engine.
#[derive(Debug, Serialize)]
pub struct EngineReport {
    /// Runs launched by `enqueueV3`.
    by_calls: LaunchReport,
    /// Runs launched as one CUDA graph.
    as_graph: Option<LaunchReport>,
    /// Why a CUDA graph is not possible.
    graph_refused: Option<String>,
    /// Size of all inputs, and of all outputs, in bytes.
    input_bytes: usize,
    output_bytes: usize,
    /// The mean time of each layer, in order.
    layers: Vec<LayerReport>,
    whole_frames: WholeFrames,
}

/// The measurements of whole frames on the GPU.
#[derive(Debug, Serialize)]
pub struct WholeFrames {
    /// Frames per second by the number of runs in flight, from 1 on.
    per_second_by_flights: Vec<f64>,
    memory: String,
    graph_runs: u64,
    single_runs: u64,
    /// Bytes of frames that had to be copied to the GPU.
    copied_bytes: u64,
}

impl WholeFrames {
    /// Measures each number of runs in flight that `detector` supports.
    pub fn measure(
        detector: &mut Detector,
        frames: &[Frame],
        iterations: &Iterations,
        buffers: &Buffers,
    ) -> Result<Self, ExitError> {
        let iterations = iterations.part(SHARE_OF_TIME);
        let flights = 1..=detector.max_in_flight();
        let rate = |flights| throughput(detector, FrameWriter::new(frames, buffers)?, flights, &iterations);
        let rates = flights.map(rate).collect::<Result<_, _>>()?;
        let counts = detector.counts();
        Ok(Self {
            per_second_by_flights: rates,
            memory: buffers.describe(),
            graph_runs: counts.graph_runs,
            single_runs: counts.single_runs,
            copied_bytes: counts.copied_bytes,
        })
    }
}

/// The measurements of one launch method.
#[derive(Debug, Serialize)]
struct LaunchReport {
    /// CPU time to enqueue a run.
    enqueue_us: Figures,
    /// GPU time of a run.
    gpu_us: Figures,
    /// Time from the enqueue until the CPU sees that the run is done.
    done_us: Figures,
    /// The same, including copies of the inputs to the GPU and of the outputs back.
    host_us: Figures,
    /// Runs per second, with each enqueued while the previous one runs.
    runs_per_second: f64,
}

/// The time of a layer.
#[derive(Debug, Serialize)]
struct LayerReport {
    name: String,
    mean_us: f64,
    /// Share of the time of all layers, 0 to 1.
    share: f64,
}

impl EngineReport {
    pub fn measure(
        loaded: &LoadedModel,
        engine: &Arc<TrtEngine>,
        iterations: &Iterations,
        with_layers: bool,
        whole_frames: WholeFrames,
    ) -> Result<Self, ExitError> {
        let fail = |error: EngineError| ExitError::new(Exit::Model.unless_gpu_lost(&error), error);
        let shapes = Detector::input_shapes(&loaded.engine, &loaded.card, 1)
            .map_err(|error| ExitError::new(Exit::Model.unless_gpu_lost(&error), error))?;
        let mut bare = EngineBenchmark::new(engine, &shapes).map_err(fail)?;
        let iterations = iterations.part(SHARE_OF_TIME);
        let by_calls = measure_launch(&mut bare, Launch::Calls, &iterations).map_err(fail)?;
        let (as_graph, graph_refused) = match bare.record() {
            Ok(()) => (Some(measure_launch(&mut bare, Launch::Graph, &iterations).map_err(fail)?), None),
            Err(error) if is_gpu_lost(&error) => return Err(fail(error)),
            Err(error) => (None, Some(error.to_string())),
        };
        let layers = if with_layers { layers(&mut bare).map_err(fail)? } else { Vec::new() };
        let (input_bytes, output_bytes) = bare.tensor_bytes();
        Ok(Self { by_calls, as_graph, graph_refused, input_bytes, output_bytes, layers, whole_frames })
    }

    pub fn table(&self) -> String {
        let mut out = String::new();
        for (title, way) in [("engine by calls", Some(&self.by_calls)), ("engine as a graph", self.as_graph.as_ref())] {
            let Some(way) = way else { continue };
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(out, "{title} ({:.1} runs/s back to back)", way.runs_per_second);
            out += &way.enqueue_us.row("  enqueue");
            out += &way.gpu_us.row("  on the GPU");
            out += &way.done_us.row("  until done");
            out += &way.host_us.row("  with copies");
        }
        if let Some(refused) = &self.graph_refused {
            let _ = writeln!(out, "engine as a graph: not possible: {}", escape(refused));
        }
        out
    }

    /// Returns the table of layers; empty without --layers.
    pub fn layer_table(&self) -> String {
        if self.layers.is_empty() {
            return String::new();
        }
        let mut out = format!("\n{:>5}{:>11}{:>8}  LAYER\n", "", "mean us", "share");
        for (index, layer) in self.layers.iter().enumerate() {
            let share = format!("{:.1} %", layer.share * 100.0);
            let _ = writeln!(out, "{index:>5}{:>11.2}{share:>8}  {}", layer.mean_us, escape(&layer.name));
        }
        let all: f64 = self.layers.iter().map(|layer| layer.mean_us).sum();
        let _ = writeln!(out, "{:>5}{all:>11.2}  all layers; each is measured alone, so together they take less", "");
        out
    }

    /// Returns the lines about whole frames.
    pub fn frame_lines(&self) -> String {
        let whole = &self.whole_frames;
        let rates = (1..).zip(&whole.per_second_by_flights);
        let rates: Vec<_> = rates.map(|(flights, rate)| format!("{rate:.1} with {flights} in flight")).collect();
        let runs = match (whole.graph_runs, whole.single_runs) {
            (0, single) => format!("{single} runs by calls"),
            (graph, single) => format!("{graph} runs as a graph, {single} by calls"),
        };
        format!(
            "whole frames per second, without messages: {}\nframes in {}, {} bytes of them copied; {runs}\n",
            rates.join(", "),
            whole.memory,
            whole.copied_bytes
        )
    }

    /// Returns the median time of a single run in microseconds; as a graph if possible.
    pub fn floor_us(&self) -> f64 {
        self.as_graph.as_ref().unwrap_or(&self.by_calls).done_us.median
    }
}

fn measure_launch(
    bare: &mut EngineBenchmark,
    launch: Launch,
    iterations: &Iterations,
) -> Result<LaunchReport, EngineError> {
    for _ in 0..iterations.warmup {
        bare.run(launch)?;
    }
    let runs: Vec<RunTime> = iterations.repeat("runs of the engine alone", |_| bare.run(launch))?;
    let with_copies = iterations.repeat("runs of the engine with copies", |_| bare.run_with_copies(launch))?;
    let count = runs.len() as u64;
    let took = bare.run_back_to_back(launch, count)?;
    Ok(LaunchReport {
        enqueue_us: Figures::of(runs.iter().map(|run| run.enqueue)),
        gpu_us: Figures::of(runs.iter().map(|run| run.gpu)),
        done_us: Figures::of(runs.iter().map(|run| run.done)),
        host_us: Figures::of(with_copies.into_iter()),
        runs_per_second: count as f64 / took.as_secs_f64().max(1e-9),
    })
}

/// Returns the mean times over several runs. Layers are identified by index, because names may repeat.
fn layers(bare: &mut EngineBenchmark) -> Result<Vec<LayerReport>, EngineError> {
    let mut sums: Vec<(String, f64)> = Vec::new();
    for run in 0..LAYER_RUNS {
        let times = bare.layers()?;
        if run == 0 {
            sums = times.iter().map(|time| (time.name.clone(), 0.0)).collect();
        }
        for (sum, time) in sums.iter_mut().zip(times) {
            sum.1 += time.us;
        }
    }
    Ok(shares(sums.into_iter().map(|(name, sum)| (name, sum / LAYER_RUNS as f64)).collect()))
}

fn shares(means: Vec<(String, f64)>) -> Vec<LayerReport> {
    let all: f64 = means.iter().map(|(_, mean)| mean).sum();
    let round = |value: f64, by: f64| (value * by).round() / by;
    let layer = |(name, mean): (String, f64)| LayerReport {
        name,
        mean_us: round(mean, 100.0),
        share: round(mean / all.max(f64::MIN_POSITIVE), 10_000.0),
    };
    means.into_iter().map(layer).collect()
}

/// Returns whole frames per second with `flights` runs in flight. A separate thread writes the frames, as a source's thread does.
fn throughput(
    detector: &mut Detector,
    writer: FrameWriter<'_>,
    flights: usize,
    iterations: &Iterations,
) -> Result<f64, ExitError> {
    let fail = |error: DetectorError| ExitError::new(Exit::Model.unless_gpu_lost(&error), error);
    std::thread::scope(|scope| {
        let (sender, written) = sync_channel(1);
        // Ends when the receiver is dropped.
        let write = move || (0..).all(|n| sender.send(writer.frame(n)).is_ok());
        std::thread::Builder::new().name("write".to_owned()).spawn_scoped(scope, write).map_err(thread_error)?;
        let mut found: Vec<Detection> = Vec::new();
        let mut in_flight = VecDeque::with_capacity(flights);
        let (mut begun, mut done) = (0, 0_u64);
        let began = Instant::now();
        loop {
            if iterations.goes_on(begun, began) && in_flight.len() < flights {
                let ended = |_| Err(ExitError::new(Exit::Failure, "the thread that writes frames has ended"));
                let frame = written.recv().unwrap_or_else(ended)?;
                let view = frame.view().map_err(|error| ExitError::new(Exit::Input, error))?;
                in_flight.push_back(detector.begin(&[view]).map_err(fail)?);
                begun += 1;
                continue;
            }
            let Some(run_id) = in_flight.pop_front() else { break };
            detector.finish(run_id).map_err(fail)?;
            detector.detections(run_id, 0, &mut found).map_err(fail)?;
            done += 1;
        }
        Ok(done as f64 / began.elapsed().as_secs_f64().max(1e-9))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;
    use std::time::Duration;

    use visiond_config::types::{BackendChoice, EngineConfig, ModelConfig};

    use super::super::frames::read_frames;
    use super::*;

    #[test]
    fn layers_have_shares_of_all() {
        let layers = shares(vec![("conv".to_owned(), 3.0), ("relu".to_owned(), 1.0)]);
        assert_eq!((layers[0].share, layers[1].share), (0.75, 0.25));
        assert!(shares(Vec::new()).is_empty());
    }

    fn figures(us: u64) -> Figures {
        Figures::of([Duration::from_micros(us)].into_iter())
    }

    fn launch(us: u64) -> LaunchReport {
        LaunchReport {
            enqueue_us: figures(us),
            gpu_us: figures(us + 1),
            done_us: figures(us + 2),
            host_us: figures(us + 3),
            runs_per_second: us as f64 / 4.0,
        }
    }

    fn report(as_graph: Option<LaunchReport>) -> EngineReport {
        let graph_refused = as_graph.is_none().then(|| "a layer\x1b copies".to_owned());
        EngineReport {
            by_calls: launch(10),
            as_graph,
            graph_refused,
            input_bytes: 1,
            output_bytes: 2,
            layers: shares(vec![("conv".to_owned(), 3.0), ("relu\x1b".to_owned(), 1.004)]),
            whole_frames: WholeFrames {
                per_second_by_flights: vec![30.04, 55.06],
                memory: "mapped memory".to_owned(),
                graph_runs: 0,
                single_runs: 7,
                copied_bytes: 9,
            },
        }
    }

    #[test]
    fn each_way_of_launching_has_its_rows_and_the_graph_is_the_floor() {
        let row = |title: &str, us: u64| figures(us).row(title);
        let calls = [row("  enqueue", 10), row("  on the GPU", 11), row("  until done", 12), row("  with copies", 13)];
        let head = format!("engine by calls (2.5 runs/s back to back)\n{}", calls.concat());
        let without = report(None);
        assert_eq!(without.table(), format!("{head}engine as a graph: not possible: a layer\\u{{1b}} copies\n"));
        assert_eq!(without.floor_us(), 12.0);
        let with = report(Some(launch(4)));
        let graph = [row("  enqueue", 4), row("  on the GPU", 5), row("  until done", 6), row("  with copies", 7)];
        let graph = format!("engine as a graph (1.0 runs/s back to back)\n{}", graph.concat());
        assert_eq!((with.table(), with.floor_us()), (head + &graph, 6.0));
    }

    #[test]
    fn layers_are_a_table_with_their_sum_and_whole_frames_two_lines() {
        let mut report = report(None);
        let table = "
         mean us   share  LAYER
    0       3.00  74.9 %  conv
    1       1.00  25.1 %  relu\\u{1b}
            4.00  all layers; each is measured alone, so together they take less
";
        assert_eq!(report.layer_table(), table);
        report.layers.clear();
        assert_eq!(report.layer_table(), "");
        let lines = |runs: &str| {
            format!(
                "whole frames per second, without messages: 30.0 with 1 in flight, 55.1 with 2 in flight\n\
                 frames in mapped memory, 9 bytes of them copied; {runs}\n"
            )
        };
        assert_eq!(report.frame_lines(), lines("7 runs by calls"));
        report.whole_frames.graph_runs = 5;
        assert_eq!(report.frame_lines(), lines("5 runs as a graph, 7 by calls"));
    }

    #[test]
    fn whole_frames_are_run_until_as_many_as_wanted_are_done() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm/tiny.onnx");
        let config = ModelConfig { path: model, ..ModelConfig::default() };
        let rten = EngineConfig { backend: BackendChoice::Rten, ..EngineConfig::default() };
        let loaded = LoadedModel::load(&config, &rten).unwrap();
        let mut detector = loaded.required_detector().unwrap();
        let frames: Vec<_> = read_frames("pattern", 2).unwrap().collect::<Result<_, _>>().unwrap();
        let iterations = Iterations { frames: 5, duration: None, warmup: 0 };
        let writer = FrameWriter::new(&frames, &Buffers::host(1)).unwrap();
        let rate = throughput(&mut detector, writer, 1, &iterations).unwrap();
        assert!(rate > 0.0 && rate.is_finite(), "{rate}");
    }
}
