//! What threads take beside blocks, and on how many of them there is room to compute.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bdrun_array::source::{Held, Sink};
use bdrun_array::{Array, Block, DType, Progress, Settings, Threads, Unary};

/// What one test takes another would measure.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of this process that are no file's.
fn own() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn on(compute: usize) -> Settings {
    Settings { threads: Threads { compute, transfer: 1 }, ..Settings::default() }
}

fn numbers(shape: &[usize; 2], dtype: DType) -> Array {
    let values = vec![0.5; shape[0] * shape[1]];
    Array::from_block(Block::from_slice(shape, &values).unwrap()).astype(dtype)
}

/// A thread that has multiplied keeps no more than is counted, whatever it has multiplied.
#[test]
fn a_thread_takes_what_is_counted() {
    let _alone = alone();
    // What one thread has given back the next one would use again, and none would take it.
    #[cfg(target_env = "gnu")]
    // SAFETY: it says of what size on memory is the kernel's.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
    let elementwise = Array::full(&[1000, 1000], 2.0, DType::F64).unary(Unary::Sin).unwrap();
    let mut of = vec![("no product".to_owned(), elementwise)];
    for [rows, middle, columns] in [
        [1000, 1000, 1000],
        [3000, 300, 300],
        [300, 300, 3000],
        [300, 3000, 300],
        [500, 600, 2000],
        [1500, 1500, 1500],
        [9000, 600, 40],
        [40, 600, 9000],
        [30, 30, 30],
    ] {
        for dtype in [DType::F64, DType::F32, DType::C64] {
            let (x, y) = (numbers(&[rows, middle], dtype), numbers(&[middle, columns], dtype));
            of.push((format!("{dtype}: {rows} x {middle} x {columns}"), x.dot(&y).unwrap()));
            let (x, y) = (numbers(&[middle, rows], dtype), numbers(&[columns, middle], dtype));
            of.push((format!("{dtype}: {rows} x {middle} x {columns}, turned"), x.t().dot(&y.t()).unwrap()));
        }
    }
    of.push(("factors".into(), numbers(&[2000, 200], DType::F64).svd().unwrap()[1].clone()));
    for (name, array) in of {
        let held = Held::new(array.dtype(), array.shape()).unwrap();
        let prepared = on(1).prepare(&[(array.clone(), &held as &dyn Sink)]).unwrap();
        let result = (array.len() * array.dtype().size()) as u64;
        // A new thread, which has packed nothing.
        let took = std::thread::scope(|scope| {
            let run = || {
                let before = own();
                prepared.run(&Progress::default()).unwrap();
                own().saturating_sub(before)
            };
            scope.spawn(run).join().unwrap()
        });
        let counted = result + prepared.per_thread();
        assert!(
            took <= counted,
            "{name}: {took} bytes, of which {result} are the result, and {counted} counted"
        );
    }
}

#[test]
fn there_are_as_many_threads_as_there_is_room_for() {
    let _alone = alone();
    let x = Array::full(&[3000, 3000], 1.5, DType::F64).rechunk_regular(&[300, 300]).unwrap();
    let array = x.dot(&x).unwrap();
    let held = Held::new(array.dtype(), array.shape()).unwrap();
    let outputs = [(array, &held as &dyn Sink)];
    let fitting = |free: u64| on(64).prepare(&outputs).unwrap().on_fewer(free);
    for free in [0, 1 << 20, 10 << 20, 40 << 20, 100 << 20, 200 << 20] {
        let prepared = fitting(free);
        let threads = prepared.threads().compute;
        assert!((1..=64).contains(&threads));
        let task = prepared.graph.tasks().map(|task| prepared.graph.need(task)).max().unwrap();
        let room = (free / 2).min(free.saturating_sub(task));
        assert!(threads == 1 || prepared.beside() <= room, "{threads} of {free}");
        assert!(threads == 64 || prepared.beside() + prepared.per_thread() > room, "{threads} of {free}");
    }
    assert_eq!((fitting(0).threads().compute, fitting(8 << 30).threads().compute), (1, 64));
    // It takes what fewer threads take.
    assert!(fitting(40 << 20).bound < fitting(8 << 30).bound);
    let done = fitting(60 << 20);
    let left = (60 << 20) - done.beside();
    done.within(left).unwrap().run(&Progress::default()).unwrap();
    // For one task there is one thread.
    let one = Array::full(&[10], 1.5, DType::F64);
    let held = Held::new(DType::F64, &[10]).unwrap();
    let prepared = on(64).prepare(&[(one, &held as &dyn Sink)]).unwrap();
    assert!(prepared.beside() <= 2 * prepared.per_thread());
    assert_eq!(prepared.on_fewer(8 << 30).threads().compute, 1);
}
