//! Windows between processes: memory of the program, which its owner changes, and memory that all share.

use std::ffi::c_void;
use std::ptr::null_mut;

use bdrun_mpi_core::error::{Class, Code};

use super::{run, run_on};
use crate::Mpi;
use crate::args::{Buffer, Handles, Ints};
use crate::calls::{Datatypes, Groups, Infos, Windows};
use crate::failure::number;
use crate::handle::{Comm, Datatype, Info, Op, Win};

const LONG: Datatype = Datatype(522);
const EXCLUSIVE: i64 = 301;
const SHARED: i64 = 302;
const SUM: Op = Op(0x21);
const REPLACE: Op = Op(0x3c);
const NOTHING: Op = Op(0x3d);

fn datatypes(of: &[Datatype]) -> Handles<Datatype> {
    unsafe fn read(at: *mut c_void, index: usize) -> crate::failure::Answer<u64> {
        // SAFETY: the caller's.
        Ok(unsafe { at.cast::<Datatype>().add(index).read() }.0)
    }
    unsafe fn write(_: *mut c_void, _: usize, _: u64) {}
    Handles::new(of.as_ptr().cast_mut().cast(), read, write)
}

/// How many numbers each has in its part.
const NUMBERS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavor {
    Create,
    Allocate,
    Shared,
    Dynamic,
}

const FLAVORS: [Flavor; 4] = [Flavor::Create, Flavor::Allocate, Flavor::Shared, Flavor::Dynamic];

/// Each flavor on one node and, where it can be, on several.
fn everywhere() -> impl Iterator<Item = (Flavor, u32)> {
    let on = |nodes: u32| move |flavor: Flavor| (flavor, nodes);
    let may = |&(flavor, _): &(Flavor, u32)| flavor != Flavor::Shared;
    FLAVORS
        .into_iter()
        .map(on(1))
        .chain([2, 4].into_iter().flat_map(move |nodes| FLAVORS.map(on(nodes)).into_iter().filter(may)))
}

/// A window, and where each member's numbers are for the others.
struct Made {
    win: Win,
    own: *mut i64,
    /// Of a dynamic one, addresses.
    places: Vec<i64>,
    _memory: Vec<i64>,
}

impl Made {
    fn new(mpi: &Mpi, flavor: Flavor) -> Self {
        let (bytes, mut base) = ((NUMBERS * 8) as i64, null_mut::<i64>());
        let at = (&raw mut base).cast::<c_void>();
        let mut memory = vec![0i64; NUMBERS];
        // SAFETY: the memory lives as long as the window.
        let win = unsafe {
            match flavor {
                Flavor::Create => {
                    base = memory.as_mut_ptr();
                    mpi.win_create(base.cast(), bytes, 8, Info::NULL, Comm::WORLD)
                }
                Flavor::Allocate => mpi.win_allocate(bytes, 8, Info::NULL, Comm::WORLD, at),
                Flavor::Shared => mpi.win_allocate_shared(bytes, 8, Info::NULL, Comm::WORLD, at),
                Flavor::Dynamic => {
                    base = memory.as_mut_ptr();
                    let win = mpi.win_create_dynamic(Info::NULL, Comm::WORLD).expect("made");
                    mpi.win_attach(win, base.cast(), bytes).expect("attached");
                    Ok(win)
                }
            }
        };
        let (win, world) = (win.expect("made"), mpi.world().expect("begun").all.clone());
        let own = if flavor == Flavor::Dynamic { base as i64 } else { 0 };
        let places = mpi.said_by_all(&world, "places", &[own]).expect("said");
        Self { win, own: base, places: places.into_iter().map(|place| place[0]).collect(), _memory: memory }
    }

    /// The displacement of a member's number.
    fn at(&self, target: u32, nth: usize) -> i64 {
        match self.places[target as usize] {
            0 => nth as i64,
            address => address + nth as i64 * 8,
        }
    }

    fn own(&self, nth: usize) -> i64 {
        assert!(nth < NUMBERS);
        // SAFETY: within the part, which others may write.
        unsafe { self.own.add(nth).read_volatile() }
    }

    fn put(&self, mpi: &Mpi, target: u32, nth: usize, values: &mut [i64]) {
        let (buffer, n) = (Buffer::At(values.as_mut_ptr().cast()), values.len() as i64);
        // SAFETY: the numbers are there.
        unsafe { mpi.put(buffer, n, LONG, target.into(), self.at(target, nth), n, LONG, self.win) }
            .expect("put");
    }

    fn get(&self, mpi: &Mpi, target: u32, nth: usize, values: &mut [i64]) {
        let (buffer, n) = (Buffer::At(values.as_mut_ptr().cast()), values.len() as i64);
        // SAFETY: the numbers are there, until the epoch ends.
        unsafe { mpi.get(buffer, n, LONG, target.into(), self.at(target, nth), n, LONG, self.win) }
            .expect("got");
    }

    fn fetch(&self, mpi: &Mpi, target: u32, nth: usize, (mut value, op): (i64, Op)) -> i64 {
        let (mut old, place) = (i64::MIN, self.at(target, nth));
        let [from, into] = [&raw mut value, &raw mut old].map(|at| Buffer::At(at.cast()));
        // SAFETY: the numbers are there, until all is done.
        unsafe {
            mpi.fetch_and_op(from, into, LONG, target.into(), place, op, self.win).expect("fetched");
            mpi.win_flush(target.into(), self.win).expect("flushed");
        }
        old
    }

    fn free(self, mpi: &Mpi) {
        // SAFETY: it has no attributes.
        assert_eq!(unsafe { mpi.win_free(self.win) }, Ok(Win::NULL));
    }
}

#[test]
fn who_puts_between_fences_is_seen_behind_them() {
    for (flavor, nodes) in everywhere() {
        run_on(nodes, 4, |mpi, process| {
            let made = Made::new(mpi, flavor);
            // SAFETY: nothing of the program is used here.
            let fence = || unsafe { mpi.win_fence(0, made.win) }.expect("fence");
            fence();
            for round in 0..20i64 {
                let mut value = [round * 10 + i64::from(process), -1];
                made.put(mpi, (process + 1) % 4, 3, &mut value);
                fence();
                assert_eq!([made.own(3), made.own(4)], [round * 10 + i64::from((process + 3) % 4), -1]);
                let mut got = [0; 3];
                made.get(mpi, (process + 2) % 4, 2, &mut got);
                fence();
                assert_eq!(got, [0, round * 10 + i64::from((process + 1) % 4), -1], "{flavor:?}");
            }
            made.free(mpi);
        });
    }
}

#[test]
fn what_is_combined_is_combined_whole() {
    const TIMES: i64 = 200;
    for (flavor, nodes) in everywhere() {
        run_on(nodes, 4, |mpi, process| {
            let made = Made::new(mpi, flavor);
            // SAFETY: the numbers are there; all is done before they go.
            unsafe {
                mpi.win_lock_all(0, made.win).expect("locked");
                let mut seen = vec![];
                for nth in 0..TIMES {
                    // A counter of the first member's: nobody gets a number twice.
                    seen.push(made.fetch(mpi, 0, 0, (1, SUM)));
                    let mut values = [1i64, nth, i64::from(process)];
                    let (target, buffer) = (nth % 4, Buffer::At(values.as_mut_ptr().cast()));
                    let place = made.at(target as u32, 8);
                    mpi.accumulate(buffer, 3, LONG, target, place, 3, LONG, SUM, made.win).expect("added");
                }
                mpi.win_unlock_all(made.win).expect("unlocked");
                assert!(seen.is_sorted() && seen.windows(2).all(|two| two[0] < two[1]), "{seen:?}");
                mpi.win_fence(0, made.win).expect("fence");
            }
            if process == 0 {
                assert_eq!(made.own(0), 4 * TIMES);
            }
            let nths: i64 = (0..TIMES).filter(|nth| nth % 4 == i64::from(process)).sum();
            let expected = [TIMES, 4 * nths, TIMES / 4 * 6];
            assert_eq!([made.own(8), made.own(9), made.own(10)], expected, "{flavor:?}");
            made.free(mpi);
        });
    }
}

/// A number that is read, changed and written by one at a time; readers see both halves of it.
#[test]
fn who_locks_alone_is_alone() {
    const TIMES: i64 = 100;
    for (flavor, nodes) in everywhere() {
        run_on(nodes, 4, |mpi, process| {
            let made = Made::new(mpi, flavor);
            for nth in 0..TIMES {
                let target = ((nth / 10) % 2) as u32;
                let alone = (nth + i64::from(process)) % 3 != 0;
                // SAFETY: the numbers are there; all is done before they go.
                unsafe {
                    let kind = if alone { EXCLUSIVE } else { SHARED };
                    mpi.win_lock(kind, target.into(), 0, made.win).expect("locked");
                    let mut values = [0; 2];
                    made.get(mpi, target, 20, &mut values);
                    mpi.win_flush(target.into(), made.win).expect("flushed");
                    assert_eq!(values[0], -values[1], "{flavor:?}: half of it");
                    if alone {
                        values = [values[0] + 1, values[1] - 1];
                        made.put(mpi, target, 20, &mut values[..1]);
                        mpi.win_flush(target.into(), made.win).expect("flushed");
                        made.put(mpi, target, 21, &mut values[1..]);
                    }
                    mpi.win_unlock(target.into(), made.win).expect("unlocked");
                }
            }
            // SAFETY: nothing of the program is used here.
            unsafe { mpi.win_fence(0, made.win) }.expect("fence");
            let in_turn = |target: i64| (0..TIMES).filter(move |nth| (nth / 10) % 2 == target);
            if process < 2 {
                let alone = |member: i64| {
                    in_turn(process.into()).filter(move |nth| (nth + member) % 3 != 0).count() as i64
                };
                assert_eq!(made.own(20), (0..4).map(alone).sum::<i64>(), "{flavor:?}");
            }
            made.free(mpi);
        });
    }
}

#[test]
fn who_starts_waits_for_who_posts_and_the_other_way_round() {
    for (flavor, nodes) in everywhere() {
        run_on(nodes, 3, |mpi, process| {
            let made = Made::new(mpi, flavor);
            let group = |member: u32| mpi.new_group([member].into_iter().collect());
            let (to, from) = (group((process + 1) % 3), group((process + 2) % 3));
            for round in 0..30 {
                // SAFETY: the numbers are there until the epoch ends.
                unsafe {
                    mpi.win_post(from, 0, made.win).expect("posted");
                    mpi.win_start(to, 0, made.win).expect("started");
                    made.put(mpi, (process + 1) % 3, 5, &mut [round * 3 + i64::from(process)]);
                    mpi.win_complete(made.win).expect("completed");
                    if round % 2 == 0 {
                        mpi.win_wait(made.win).expect("waited");
                    } else {
                        while !mpi.win_test(made.win).expect("tested") {}
                    }
                }
                assert_eq!(made.own(5), round * 3 + i64::from((process + 2) % 3), "{flavor:?}");
            }
            // SAFETY: handles of groups.
            unsafe { mpi.group_free(to).and(mpi.group_free(from)) }.expect("freed");
            made.free(mpi);
        });
    }
}

#[test]
fn one_of_several_swaps() {
    for (flavor, nodes) in everywhere() {
        run_on(nodes, 4, |mpi, process| {
            let made = Made::new(mpi, flavor);
            // SAFETY: the numbers are there; all is done before they go.
            unsafe {
                mpi.win_lock_all(0, made.win).expect("locked");
                let (mut new, mut expected, mut old) = (i64::from(process) + 1, 0i64, -1i64);
                let [new, expected, result] =
                    [&raw mut new, &raw mut expected, &raw mut old].map(|at| Buffer::At(at.cast()));
                let place = made.at(2, 7);
                mpi.compare_and_swap(new, expected, result, LONG, 2, place, made.win).expect("swapped");
                mpi.win_flush_all(made.win).expect("flushed");
                let winner = made.fetch(mpi, 2, 7, (0, NOTHING));
                assert!((1..=4).contains(&winner) && (old == 0) == (winner == i64::from(process) + 1));
                mpi.win_unlock_all(made.win).expect("unlocked");
                mpi.win_fence(0, made.win).expect("fence");
                if process == 3 {
                    mpi.win_lock(SHARED, 2, 0, made.win).expect("locked");
                    assert_eq!(made.fetch(mpi, 2, 7, (77, REPLACE)), winner);
                    mpi.win_unlock(2, made.win).expect("unlocked");
                }
                mpi.win_fence(0, made.win).expect("fence");
            }
            assert!(process != 2 || made.own(7) == 77);
            made.free(mpi);
        });
    }
}

#[test]
fn memory_that_is_to_be_shared_is_on_one_node() {
    run_on(2, 2, |mpi, _| {
        let mut base = null_mut::<i64>();
        let at = (&raw mut base).cast::<c_void>();
        // SAFETY: there is room for an address.
        let made = unsafe { mpi.win_allocate_shared(64, 8, Info::NULL, Comm::WORLD, at) };
        let failure = made.expect_err("they share no memory");
        assert!(failure.text.is_some_and(|text| text.contains("several nodes")));
        assert_eq!(failure.code, Code::Class(Class::RmaShared));
    });
}

#[test]
fn what_is_wrong_is_told() {
    run(2, |mpi, process| {
        let told = |result: crate::failure::Answer<()>| result.map_err(|failure| number(failure.code));
        let class = |class: Class| Err(number(Code::Class(class)));
        let made = Made::new(mpi, Flavor::Allocate);
        let mut value = 0i64;
        let buffer = Buffer::At((&raw mut value).cast());
        // SAFETY: the number is there.
        unsafe {
            let put = |target: i64, place: i64, datatype: Datatype| {
                told(mpi.put(buffer, 1, LONG, target, place, 1, datatype, made.win))
            };
            assert_eq!(put(0, 0, LONG), class(Class::RmaSync), "no epoch");
            mpi.win_fence(0, made.win).expect("fence");
            assert_eq!(put(2, 0, LONG), class(Class::Rank));
            assert_eq!(put(0, -1, LONG), class(Class::Disp));
            assert_eq!(put(0, NUMBERS as i64, LONG), class(Class::RmaRange));
            assert_eq!(put(0, NUMBERS as i64 - 1, LONG), Ok(()));
            assert_eq!(put(crate::groups::PROC_NULL, 0, LONG), Ok(()));
            assert_eq!(told(mpi.win_lock(SHARED, 0, 0, made.win)), class(Class::RmaSync), "a used fence");
            mpi.win_fence(16384, made.win).expect("the last fence");
            assert_eq!(told(mpi.win_lock(7, 0, 0, made.win)), class(Class::LockType));
            assert_eq!(told(mpi.win_unlock(0, made.win)), class(Class::RmaSync));
            assert_eq!(told(mpi.win_complete(made.win)), class(Class::RmaSync));
            assert_eq!(told(mpi.win_wait(made.win)), class(Class::RmaSync));
            assert_eq!(told(mpi.win_attach(made.win, null_mut(), 8)), class(Class::RmaFlavor));
            assert_eq!(told(mpi.win_free(Win(0x2000)).map(drop)), class(Class::Win));
            // What is wrong at one of them all are told.
            let size = if process == 1 { -1 } else { 8 };
            let at = (&raw mut value).cast();
            let made = told(mpi.win_create(at, size, 1, Info::NULL, Comm::WORLD).map(drop));
            assert_eq!(made, class(if process == 1 { Class::Size } else { Class::Arg }));
        }
        made.free(mpi);
    });
}

/// A datatype may name several pieces of memory that were attached, and what is between them was not; and
/// pieces next to each other are attached as a whole.
#[test]
fn what_is_attached_piece_by_piece_is_written_at_once() {
    run(2, |mpi, process| {
        let mut memory = [0_i64; 12];
        let first = memory.as_mut_ptr();
        let place = |nth: usize| first as i64 + nth as i64 * 8;
        // SAFETY: the numbers live as long as the window.
        unsafe {
            let win = mpi.win_create_dynamic(Info::NULL, Comm::WORLD).expect("made");
            for (from, n) in [(0, 2), (8, 2), (10, 2)] {
                mpi.win_attach(win, place(from) as *mut c_void, 8 * n).expect("attached");
            }
            let world = mpi.world().expect("begun").all.clone();
            let (counts, apart) = ([2_i32, 3], [place(0), place(8)]);
            let said = mpi.said_by_all(&world, "places", &apart).expect("said");
            mpi.win_fence(0, win).expect("fence");
            // To itself first, then to the other.
            for target in [process as usize, 1 - process as usize] {
                let (counts, at) = (Ints::small(counts.as_ptr()), Ints::large(said[target].as_ptr()));
                let both = mpi.type_create_hindexed(2, counts, at, LONG, false).expect("made");
                let both = mpi.type_commit(both).expect("committed");
                let mut values = [1_i64, 2, 3, 4, 5].map(|value| value + 10 * i64::from(process));
                let from = Buffer::At(values.as_mut_ptr().cast());
                mpi.put(from, 5, LONG, target as i64, 0, 1, both, win).expect("put");
                mpi.win_fence(0, win).expect("fence");
                let mut seen = [0_i64; 5];
                let into = Buffer::At(seen.as_mut_ptr().cast());
                mpi.get(into, 5, LONG, target as i64, 0, 1, both, win).expect("got");
                mpi.accumulate(from, 5, LONG, target as i64, 0, 1, both, NOTHING, win).expect("nothing");
                mpi.win_fence(0, win).expect("fence");
                assert_eq!(seen, values);
                mpi.type_free(both).expect("freed");
            }
            let between =
                mpi.type_contiguous(9, LONG, false).and_then(|made| mpi.type_commit(made)).expect("made");
            let failure =
                mpi.put(Buffer::At(first.cast()), 1, between, process.into(), place(0), 1, between, win);
            assert!(failure.is_err(), "what is between was not attached");
            mpi.win_fence(0, win).expect("fence");
            mpi.win_free(win).expect("freed");
        }
        let other = 10 * (1 - i64::from(process));
        let written = |numbers: [i64; 12]| numbers.map(|number| if number == 0 { 0 } else { number + other });
        assert_eq!(memory, written([1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 0]));
    });
}

/// A datatype without elements, as irregular ones may be, is no error anywhere.
#[test]
fn nothing_is_combined_with_nothing() {
    run(2, |mpi, process| {
        let made = Made::new(mpi, Flavor::Create);
        let mut value = [5_i64];
        let (one, target) = (Buffer::At(value.as_mut_ptr().cast()), 1 - i64::from(process));
        // SAFETY: the number is there.
        unsafe {
            let nothing =
                mpi.type_contiguous(0, LONG, false).and_then(|made| mpi.type_commit(made)).expect("made");
            let add = |count: i64, datatype: Datatype, of: Datatype| {
                mpi.accumulate(one, count, datatype, target, 0, 1, of, SUM, made.win)
            };
            mpi.win_fence(0, made.win).expect("fence");
            assert_eq!(add(1, nothing, nothing), Ok(()));
            assert_eq!(add(0, LONG, nothing), Ok(()));
            assert!(add(1, LONG, nothing).is_err(), "there is no room");
            let got =
                mpi.get_accumulate(one, 1, nothing, one, 0, LONG, target, 0, 1, nothing, REPLACE, made.win);
            assert_eq!(got, Ok(()));
            // Beside what is something it is nothing, too.
            let (counts, at, types) = ([3_i32, 1], [0_i64, 8], [nothing, LONG]);
            let (counts, at) = (Ints::small(counts.as_ptr()), Ints::large(at.as_ptr()));
            let beside = mpi.type_create_struct(2, counts, at, datatypes(&types), false);
            let beside = beside.and_then(|made| mpi.type_commit(made)).expect("made");
            assert_eq!(add(1, LONG, beside), Ok(()));
            mpi.win_fence(0, made.win).expect("fence");
        }
        assert_eq!([made.own(0), made.own(1), made.own(2)], [0, 5, 0]);
        made.free(mpi);
    });
}

/// What is packed goes piece by piece, also where a piece ends within an element.
#[test]
fn large_columns_are_put_and_got() {
    const MANY: usize = 50_000;
    run(2, |mpi, process| {
        let mut base = null_mut::<u8>();
        // SAFETY: the memory lives as long as the window; buffers of the size that is said.
        unsafe {
            let bytes = (MANY * 24) as i64;
            let to = (&raw mut base).cast::<c_void>();
            let win = mpi.win_allocate(bytes, 1, Info::NULL, Comm::WORLD, to).expect("made");
            let pair = mpi.type_contiguous(9, Datatype(0x247), false).expect("made");
            let columns = [LONG, pair].map(|of| {
                let column = mpi.type_create_hvector(MANY as i64, 1, 24, of, false);
                column.and_then(|column| mpi.type_commit(column)).expect("made")
            });
            for (column, size) in columns.into_iter().zip([8, 9]) {
                let value = |at: usize| (at / size * 7 + at % size + process as usize * 3) as u8;
                let mut values: Vec<u8> = (0..MANY * size).map(value).collect();
                let mut back = vec![0_u8; MANY * size];
                let [from, into] = [&mut values, &mut back].map(|of| Buffer::At(of.as_mut_ptr()));
                let (target, count, byte) = (1 - i64::from(process), (MANY * size) as i64, Datatype(0x247));
                mpi.win_fence(0, win).expect("fence");
                mpi.put(from, count, byte, target, 5, 1, column, win).expect("put");
                mpi.win_fence(0, win).expect("fence");
                mpi.get(into, count, byte, target, 5, 1, column, win).expect("got");
                mpi.win_fence(0, win).expect("fence");
                assert!(back == values);
            }
            mpi.win_free(win).expect("freed");
        }
    });
}

/// Who says that its memory need not follow the others' says so for itself: where all would be is for all.
#[test]
fn memory_is_apart_only_if_all_say_so() {
    for said in [0, 1, 3] {
        run(3, |mpi, process| {
            let mut base = null_mut::<u8>();
            let at = (&raw mut base).cast::<c_void>();
            // SAFETY: strings end; there is room for addresses; each writes its own part.
            unsafe {
                let info = mpi.info_create().expect("made");
                if process < said {
                    let (key, value) = (c"alloc_shared_noncontig", c"true");
                    mpi.info_set(info, key.as_ptr(), value.as_ptr()).expect("set");
                }
                let win = mpi.win_allocate_shared(100, 1, info, Comm::WORLD, at).expect("made");
                let places = [0, 1, 2].map(|rank| {
                    let mut base = null_mut::<u8>();
                    mpi.win_shared_query(win, rank, (&raw mut base).cast()).expect("there");
                    base as usize
                });
                let far = if said == 3 { 4096 } else { 100 };
                assert_eq!([places[1] - places[0], places[2] - places[1]], [far; 2], "{said}");
                let used = mpi.win_get_info(win).expect("told");
                let mut value = [0; 8];
                let key = c"alloc_shared_noncontig".as_ptr();
                let (_, is_there) = mpi.info_get_string(used, key, 8, value.as_mut_ptr()).expect("asked");
                let expected: &[u8] = if said == 3 { b"true" } else { b"false" };
                let value = std::ffi::CStr::from_ptr(value.as_ptr()).to_bytes();
                assert_eq!((is_there, value), (true, expected), "what was done");
                mpi.win_free(win).expect("freed");
            }
        });
    }
}
