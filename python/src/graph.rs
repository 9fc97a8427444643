//! `bdrun_graph::online` for `bdrun/graph.py`.

use std::ffi::{CStr, c_char};
use std::os::unix::ffi::OsStrExt;

use bdrun_graph::online::{Effect, Event, Online, Place};
use bdrun_graph::order::Effort;
use bdrun_graph::{Builder, FunctionId, Inputs, Output, Task, TaskId};

use crate::guarded;
use crate::picture::Trace;

/// An execution, and what it wants done that was not taken yet.
pub struct Execution {
    pub(crate) online: Online,
    effects: std::collections::VecDeque<Effect>,
    trace: Option<Trace>,
}

/// A graph of `tasks` tasks, numbered from 0, to be run within `budget` bytes by so many workers. Task t
/// needs `needs[starts[t]..starts[t + 1]]`, is of group `groups[t]`, and its result is kept if `kept[t]` is
/// not 0. Null if there is no such graph: a circle, a number that is none of a task.
///
/// # Safety
/// The arrays are of `tasks + 1`, `starts[tasks]`, `tasks` and `tasks` elements. What is returned is given
/// back to [`bdrun_graph_free`] once, and used by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_new(
    tasks: u32,
    starts: *const u32,
    needs: *const u32,
    groups: *const u32,
    kept: *const u8,
    budget: u64,
    workers: u32,
) -> *mut Execution {
    guarded(std::ptr::null_mut(), || {
        let count = tasks as usize;
        // SAFETY: so many elements are there, as is asked for.
        let (starts, groups, kept) =
            unsafe { (slice(starts, count + 1), slice(groups, count).to_vec(), slice(kept, count)) };
        // SAFETY: so many are there, as is asked for.
        let needs = unsafe { slice(needs, *starts.last().unwrap_or(&0) as usize) };
        let keys: Vec<String> = (0..tasks).map(|task| task.to_string()).collect();
        let mut builder = Builder::default();
        for task in 0..count {
            let row = needs.get(starts[task] as usize..starts[task + 1] as usize);
            let row = row.ok_or("the starts of rows do not ascend")?;
            let row: Option<Vec<&str>> =
                row.iter().map(|&input| keys.get(input as usize).map(String::as_str)).collect();
            let row = row.ok_or("an input is no task")?;
            let output = if kept[task] != 0 { Output::Kept } else { Output::No };
            let task = Task { output, ..Task::new(&keys[task], FunctionId(0), Inputs::Keys(&row)) };
            builder.add(task).map_err(|error| error.to_string())?;
        }
        let graph = builder.build().map_err(|error| error.to_string())?;
        if workers == 0 {
            return Err("there is no worker".into());
        }
        let effort = Effort { visits: 10_000_000, ..Effort::default() };
        let mut online = Online::new(graph, groups, budget, workers as usize, effort);
        online.begin();
        Ok(Box::into_raw(Box::new(Execution { online, effects: Default::default(), trace: None })))
    })
}

/// # Safety
/// There are so many elements, that nobody changes as long as they are used; or none.
unsafe fn slice<'a, T>(from: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as is asked for.
    unsafe { std::slice::from_raw_parts(from, count) }
}

/// # Safety
/// It was made by [`bdrun_graph_new`], and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_free(execution: *mut Execution) {
    // SAFETY: as is asked for.
    drop(unsafe { Box::from_raw(execution) });
}

/// Something has happened: 0 done (its result has `bytes`, it took `took`), 1 stored, 2 written, 3 read,
/// 4 died, 5 took so much, 6 the budget is `bytes`. 0, or -1 with an error.
///
/// # Safety
/// As for [`bdrun_graph_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_handle(
    execution: *mut Execution,
    what: u32,
    task: u32,
    bytes: u64,
    took: u64,
) -> i32 {
    guarded(-1, || {
        // SAFETY: one thread at a time uses it, as is asked for.
        let execution = unsafe { &mut *execution };
        let task = TaskId(task);
        let event = match what {
            0 => Event::Done { task, bytes, took },
            1 => Event::Stored(task),
            2 => Event::Written(task),
            3 => Event::Read(task),
            4 => Event::Died(task),
            5 => Event::Took(task, took),
            6 => Event::Budget(bytes),
            other => return Err(format!("there is no event {other}")),
        };
        execution.online.handle(event);
        if let Some(trace) = &mut execution.trace {
            trace.heard(event, execution.online.used());
        }
        Ok(0)
    })
}

/// Puts what is to be done into `whats` and `tasks`, of `room` elements each, and returns how much that is: 0
/// run, 1 run and it takes more than the budget, 2 store in memory, 3 store on scratch, 4 write, 5 read, 6
/// forget in memory, 7 forget on scratch. Where all elements are used there may be more.
///
/// # Safety
/// The arrays have so many elements; and as for [`bdrun_graph_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_effects(
    execution: *mut Execution,
    whats: *mut u32,
    tasks: *mut u32,
    room: u32,
) -> i32 {
    guarded(-1, || {
        // SAFETY: one thread at a time uses it, as is asked for.
        let execution = unsafe { &mut *execution };
        let used = execution.online.used();
        for effect in execution.online.effects() {
            if let Some(trace) = &mut execution.trace {
                trace.told(effect, used);
            }
            execution.effects.push_back(effect);
        }
        let count = execution.effects.len().min(room as usize);
        for (at, effect) in execution.effects.drain(..count).enumerate() {
            let (what, task) = match effect {
                Effect::Run { task, too_large } => (u32::from(too_large), task),
                Effect::Store(task, Place::Memory) => (2, task),
                Effect::Store(task, Place::Scratch) => (3, task),
                Effect::Write(task) => (4, task),
                Effect::Read(task) => (5, task),
                Effect::Forget(task, Place::Memory) => (6, task),
                Effect::Forget(task, Place::Scratch) => (7, task),
            };
            // SAFETY: `at` is below `room`, and so many elements are there, as is asked for.
            unsafe {
                whats.add(at).write(what);
                tasks.add(at).write(task.0);
            }
        }
        Ok(count as i32)
    })
}

/// What happens is noted from now on, for [`bdrun_graph_draw`].
///
/// # Safety
/// As for [`bdrun_graph_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_trace(execution: *mut Execution) {
    // SAFETY: one thread at a time uses it, as is asked for.
    unsafe { (*execution).trace = Some(Trace::default()) };
}

/// Writes a page to a file: the graph, and what was in memory when. `names` has the name of each task, one in
/// each line. 0, or -1 with an error.
///
/// # Safety
/// Both are texts with a zero behind them; and as for [`bdrun_graph_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_draw(
    execution: *const Execution,
    names: *const c_char,
    path: *const c_char,
) -> i32 {
    guarded(-1, || {
        // SAFETY: one thread at a time uses it, and both are texts, as is asked for.
        let (execution, names, path) = unsafe { (&*execution, CStr::from_ptr(names), CStr::from_ptr(path)) };
        let trace = execution.trace.as_ref().ok_or("nothing was noted")?;
        let page = trace.page(&execution.online, &names.to_string_lossy())?;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
        std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(0)
    })
}

/// What was done: tasks, bytes written and read, bytes taken at most and now, tasks that took more than the
/// budget, orders; and whether all is done.
///
/// # Safety
/// `counts` has 8 elements; and as for [`bdrun_graph_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_graph_counts(execution: *const Execution, counts: *mut u64) {
    // SAFETY: one thread at a time uses it, as is asked for.
    let online = &unsafe { &*execution }.online;
    let of = online.counts();
    let all = [
        of.done,
        of.written,
        of.read,
        of.most,
        online.used(),
        of.too_large,
        of.orders,
        online.is_done().into(),
    ];
    // SAFETY: there are eight elements, as is asked for.
    unsafe { counts.cast::<[u64; 8]>().write_unaligned(all) };
}
