//! The events of a trace, in the format of Chrome's tracing ("Trace Event Format", JSON object), which
//! Perfetto reads: a lane for each rank, counters for the job, notes as instants. Times are microseconds
//! since the job began. Behind them what `bdrun simulate` needs.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Told;
use crate::history::Sample;
use crate::simulate::{KEY, Record};

/// The job, and its ranks, as processes of the trace.
const JOB: u32 = 1;
const RANKS: u32 = 2;

pub(super) fn write(told: &Told<'_>, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    let mut first = true;
    each(told, &mut |event| {
        if !std::mem::take(&mut first) {
            out.write_all(b",\n")?;
        }
        Ok(serde_json::to_writer(&mut *out, &event)?)
    })?;
    out.write_all(b"\n]")?;
    let record = told.history.and_then(|history| Record::of(told.line, told.stats, history));
    if let Some(record) = record {
        // Whoever shows traces leaves out what it does not know.
        write!(out, ",\n\"{KEY}\":")?;
        serde_json::to_writer(&mut *out, &record)?;
    }
    out.write_all(b"}\n")
}

fn each(told: &Told<'_>, event: &mut impl FnMut(Value) -> io::Result<()>) -> io::Result<()> {
    let name = |what: &str, pid: u32, tid: u32, name: &str| json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}});
    event(name("process_name", JOB, 0, told.line))?;
    event(name("process_name", RANKS, 0, "ranks"))?;
    let Some(history) = told.history else { return Ok(()) };
    let mut before: Option<&Sample> = None;
    for sample in history.series.samples() {
        let counter = |name: &str, args: Value| {
            let ts = micros(sample.t);
            json!({"ph": "C", "name": name, "pid": JOB, "tid": 0, "ts": ts, "args": args})
        };
        event(counter("memory", json!({"held": sample.held, "budget": sample.budget})))?;
        let Sample { running, resident, out, done, .. } = *sample;
        event(counter("ranks", json!({"running": running, "resident": resident, "out": out, "done": done})))?;
        if let Some(before) = before {
            let span = (sample.t - before.t).max(1e-6);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / span;
            let (written, read) = (rate(sample.written, before.written), rate(sample.read, before.read));
            event(counter("disk", json!({"written per second": written, "read per second": read})))?;
        }
        before = Some(sample);
    }
    for rank in 0..told.stats.np {
        let part = told.stats.ranks.get(rank as usize).and_then(|rank| rank.part.as_deref());
        let part = part.map_or(String::new(), |part| format!(": {part}"));
        // The first thread of a process is shown as the process itself.
        let tid = rank + 1;
        event(name("thread_name", RANKS, tid, &format!("rank {rank}{part}")))?;
        event(
            json!({"ph": "M", "name": "thread_sort_index", "pid": RANKS, "tid": tid, "args": {"sort_index": rank}}),
        )?;
        for span in history.lanes.of(rank, told.stats.wall_s) {
            let (ts, dur) = (micros(span.from), micros(span.to - span.from));
            event(
                json!({"ph": "X", "name": span.activity, "cat": "rank", "pid": RANKS, "tid": tid, "ts": ts, "dur": dur}),
            )?;
        }
    }
    for (t, text) in history.notes().iter() {
        event(json!({"ph": "i", "s": "g", "name": text, "pid": JOB, "tid": 0, "ts": micros(*t)}))?;
    }
    Ok(())
}

fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round()
}
