//! The metrics of sinks and their spools.

use super::text_format::{Column, Page, flag};
use crate::status::report::{SinkFacts, SpoolFacts};

/// Writes the metrics of all sinks.
pub fn render(page: &mut Page, sinks: &[SinkFacts]) {
    let mut info = page.gauge("visiond_sink_info", "What a sink is and where its messages go.");
    for sink in sinks {
        info.add(&[("sink", &sink.name), ("type", &sink.kind), ("to", &sink.to)], 1.0);
    }
    let gauges: [Column<SinkFacts>; 4] = [
        ("visiond_sink_queue_messages", "Messages that wait in a sink's queue.", |sink| sink.waiting as f64),
        ("visiond_sink_queue_limit_messages", "Messages that may wait in a sink's queue.", |sink| sink.capacity as f64),
        ("visiond_sink_outage", "Whether a sink's output cannot be written.", |sink| flag(sink.outage.is_some())),
        ("visiond_sink_readers", "Readers of a sink's socket.", |sink| sink.readers as f64),
    ];
    for (name, help, value) in gauges {
        let mut family = page.gauge(name, help);
        sinks.iter().for_each(|sink| family.add(&[("sink", &sink.name)], value(sink)));
    }
    let counters: [Column<SinkFacts>; 7] = [
        ("visiond_sink_queued_total", "Messages taken into a sink's queue.", |sink| sink.queued as f64),
        ("visiond_sink_written_total", "Messages written; acknowledged, where a broker does.", |sink| {
            sink.written as f64
        }),
        ("visiond_sink_thinned_total", "Messages left out because of `max_rate`.", |sink| sink.thinned as f64),
        ("visiond_sink_reconnects_total", "Times that a broker was connected again.", |sink| sink.reconnects as f64),
        ("visiond_sink_resent_total", "Messages sent again after a connection was lost.", |sink| sink.resent as f64),
        ("visiond_sink_reader_lost_total", "Messages that a socket's reader was too slow for.", |sink| {
            sink.reader_lost as f64
        }),
        ("visiond_sink_readers_refused_total", "Readers of a socket that were turned away.", |sink| {
            sink.readers_refused as f64
        }),
    ];
    for (name, help, value) in counters {
        let mut family = page.counter(name, help);
        sinks.iter().for_each(|sink| family.add(&[("sink", &sink.name)], value(sink)));
    }
    let mut lost = page.counter("visiond_sink_lost_total", "Messages that a sink did not pass on, by cause.");
    for sink in sinks {
        // Messages that a full spool drops have a family of their own.
        let spool = sink.spool.as_ref().map_or(0, |spool| spool.dropped);
        let unsent = sink.lost.saturating_sub(sink.dropped_full + sink.failed + spool);
        for (cause, messages) in [("queue_full", sink.dropped_full), ("failed", sink.failed), ("unsent", unsent)] {
            lost.add(&[("sink", &sink.name), ("cause", cause)], messages as f64);
        }
    }
    let mut connected = page.gauge("visiond_sink_connected", "Whether a sink is connected to its broker.");
    for (sink, is) in sinks.iter().filter_map(|sink| Some((sink, sink.connected?))) {
        connected.add(&[("sink", &sink.name)], flag(is));
    }
    spools(page, sinks);
}

fn spools(page: &mut Page, sinks: &[SinkFacts]) {
    let spools: Vec<_> = sinks.iter().filter_map(|sink| Some((sink.name.as_str(), sink.spool.as_ref()?))).collect();
    let gauges: [Column<SpoolFacts>; 3] = [
        ("visiond_spool_bytes", "What a durable sink keeps on disk.", |spool| spool.bytes as f64),
        ("visiond_spool_limit_bytes", "What a durable sink may keep on disk.", |spool| spool.limit_bytes as f64),
        ("visiond_spool_messages", "Messages on disk that are not acknowledged.", |spool| spool.records as f64),
    ];
    for (name, help, value) in gauges {
        let mut family = page.gauge(name, help);
        spools.iter().for_each(|(sink, spool)| family.add(&[("sink", sink)], value(spool)));
    }
    let mut dropped = page.counter("visiond_spool_dropped_total", "Messages that went because the spool was full.");
    spools.iter().for_each(|(sink, spool)| dropped.add(&[("sink", sink)], spool.dropped as f64));
}
