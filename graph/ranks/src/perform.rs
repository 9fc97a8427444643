//! Doing what the desk says: on any rank.

use std::io;
use std::sync::Arc;

use bdrun_graph::run::{Block, Call, Failure, Lend, Lent, RunError, run_task};
use bdrun_graph::{Graph, TaskId};

use crate::memory::{Memory, Piece};
use crate::wire::{Answer, Bytes, Fault, Order, Part, TOLD};

const KEPT: &str = "the function has kept what it was given, of which it may keep a copy only";

/// Does it. Nothing of shared memory is held any more when this returns.
pub(crate) fn perform<V: Block + Lend>(
    graph: &Graph,
    memory: &Arc<Memory>,
    order: Order,
    call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
) -> Answer {
    let scratch = |error: io::Error| Answer::Failed(Fault::Scratch(error.to_string()), false);
    match order {
        Order::Run { task, inputs, into } => {
            let mut pieces = Vec::new();
            let made = run(graph, memory, TaskId(task), inputs, into, &mut pieces, call);
            // Others will write there when this is answered.
            let keeps = pieces.iter().any(|piece| Arc::strong_count(piece) > 1);
            match made {
                Ok(_) if keeps => Answer::Failed(Fault::Task { step: 0, cause: KEPT.into() }, keeps),
                Ok(part) => Answer::Made(part),
                Err(fault) => Answer::Failed(fault, keeps),
            }
        }
        Order::Write { part, to } => {
            let written = match &part.bytes {
                Bytes::Told(bytes) => memory.write_told(bytes, to),
                Bytes::Lie { at, len } => memory.write(*at, *len, to),
            };
            written.map_or_else(scratch, |()| Answer::Written)
        }
        Order::Read { from, len, into: Some(at) } => {
            memory.read(from, len, at).map_or_else(scratch, |()| Answer::Read(Bytes::Lie { at, len }))
        }
        Order::Read { from, len, into: None } => {
            let mut bytes = vec![0; len as usize];
            let read = memory.read_told(from, &mut bytes);
            read.map_or_else(scratch, |()| Answer::Read(Bytes::Told(bytes)))
        }
        Order::End(_) => unreachable!("who is told this does nothing any more"),
    }
}

/// Runs a task; `pieces` are what it is given of shared memory.
fn run<V: Block + Lend>(
    graph: &Graph,
    memory: &Arc<Memory>,
    task: TaskId,
    inputs: Vec<Part>,
    into: Option<u64>,
    pieces: &mut Vec<Arc<Piece>>,
    call: impl Fn(Call, Vec<V>) -> Result<V, Failure>,
) -> Result<Part, Fault> {
    let own = |error: io::Error| Fault::Task { step: 0, cause: error.to_string() };
    let mut values = Vec::with_capacity(inputs.len());
    for Part { head, bytes } in inputs {
        let lent = match bytes {
            Bytes::Told(bytes) => Lent::new(Arc::new(bytes)),
            Bytes::Lie { at, len } => {
                let piece = Arc::new(Piece::new(memory, at, len).map_err(own)?);
                pieces.push(piece.clone());
                Lent::new(piece)
            }
        };
        values.push(V::borrow(&V::decode(&head).map_err(own)?, lent).map_err(own)?);
    }
    let value = run_task(graph, task, values, call).map_err(|error| match error {
        RunError::Task(failure) => Fault::Task { step: failure.step, cause: failure.cause.to_string() },
        RunError::Size { bytes, .. } => Fault::Size(bytes),
        error => Fault::Task { step: 0, cause: error.to_string() },
    })?;
    let (head, bytes) = value.spill();
    let head = V::encode(&head);
    let len = bytes.len() as u64;
    if len > graph.bytes(task) {
        return Err(Fault::Size(len)); // whatever it says that it takes: its place is no larger
    }
    let bytes = if len <= TOLD {
        Bytes::Told(bytes.to_vec())
    } else if let Some(at) = into {
        memory.put(at, bytes).map_err(own)?;
        Bytes::Lie { at, len }
    } else {
        return Err(Fault::Size(len));
    };
    Ok(Part { head, bytes })
}
