//! Messages in parts.

use super::{Well, run, test, wait};
use crate::args::{Buffer, Ints, Status};
use crate::calls::{Datatypes, Partitioned, Requests};
use crate::groups::PROC_NULL;
use crate::handle::{Comm, Datatype, Info, Request};

const INT: Datatype = Datatype(521);

fn buffer(of: &mut [i32]) -> Buffer {
    Buffer::At(of.as_mut_ptr().cast())
}

/// The sender has other parts than the receiver; each arrives by itself, again and again.
#[test]
fn parts_arrive_by_themselves() {
    for (theirs, ours, each) in [(4, 4, 3), (6, 2, 2), (2, 6, 3), (3, 3, 0), (5, 1, 1)] {
        run(2, |mpi, process| {
            let (mut data, total) = (vec![-1; (theirs * each) as usize], theirs * each);
            // SAFETY: the data lives as long as the requests, and is left alone while they are active.
            unsafe {
                if process == 0 {
                    let at = buffer(&mut data);
                    let mut request =
                        mpi.psend_init(at, theirs, each, INT, 1, 5, Comm::WORLD, Info::NULL).expect("made");
                    for round in 0..20 {
                        mpi.start(request).expect("started");
                        assert!(mpi.start(request).is_err(), "it is active");
                        for part in (0..theirs).rev() {
                            let from = (part * each) as usize;
                            data[from..from + each as usize].fill(round * 100 + part as i32);
                            mpi.pready(part, request).expect("ready");
                            assert!(part == 0 || mpi.pready(part, request).is_err(), "it was ready already");
                        }
                        assert!(mpi.pready(theirs, request).is_err());
                        request = wait(mpi, request).expect("sent").0;
                    }
                    assert_eq!(mpi.request_free(request).well(), Ok(Request::NULL));
                } else {
                    let (at, count) = (buffer(&mut data), total / ours);
                    let mut request =
                        mpi.precv_init(at, ours, count, INT, 0, 5, Comm::WORLD, Info::NULL).expect("made");
                    for round in 0..20 {
                        assert_eq!(mpi.parrived(request, 0), Ok(true), "it is not active");
                        mpi.start(request).expect("started");
                        for part in 0..ours {
                            while !mpi.parrived(request, part).expect("asked") {}
                            let from = part * count;
                            for at in from..from + count {
                                assert_eq!(data[at as usize], round * 100 + (at / each) as i32);
                            }
                        }
                        if round % 2 == 0 {
                            request = wait(mpi, request).expect("received").0;
                        } else {
                            while !test(mpi, request).expect("asked").1 {}
                        }
                        assert!(mpi.parrived(request, ours).is_err() && mpi.pready(0, request).is_err());
                    }
                    assert_eq!(mpi.request_free(request).well(), Ok(Request::NULL));
                }
            }
        });
    }
}

/// Announcements are matched in the order of the calls, in whatever order what they are of is started.
#[test]
fn channels_are_matched_in_order() {
    run(2, |mpi, process| {
        let mut data = [[0; 2]; 3];
        // SAFETY: the data lives as long as the requests, and is left alone while they are active.
        unsafe {
            if process == 0 {
                for (nth, data) in data.iter_mut().enumerate() {
                    data.fill(nth as i32 + 1);
                }
                let send = |data: &mut [i32; 2]| {
                    mpi.psend_init(buffer(data), 2, 1, INT, 1, 0, Comm::WORLD, Info::NULL).expect("made")
                };
                let requests = data.each_mut().map(send);
                for &request in requests.iter().rev() {
                    mpi.start(request).expect("started");
                    let list = [1, 0];
                    mpi.pready_list(2, Ints::small(list.as_ptr()), request).expect("ready");
                    wait(mpi, request).expect("sent");
                    mpi.request_free(request).expect("freed");
                }
            } else {
                let receive = |data: &mut [i32; 2]| {
                    mpi.precv_init(buffer(data), 1, 2, INT, 0, 0, Comm::WORLD, Info::NULL).expect("made")
                };
                let requests = data.each_mut().map(receive);
                for nth in [1, 2, 0] {
                    mpi.start(requests[nth]).expect("started");
                }
                for &request in &requests {
                    wait(mpi, request).expect("received");
                    mpi.request_free(request).expect("freed");
                }
                assert_eq!(data, [[1; 2], [2; 2], [3; 2]]);
            }
        }
    });
}

/// Of the whole, however many parts it was sent in; the second channel has other tags of its own.
#[test]
fn the_status_is_that_of_the_message() {
    for (theirs, ours) in [(4, 1), (1, 6), (0, 3), (3, 0)] {
        run(2, |mpi, process| {
            let (mut data, each) = ([7; 12], if theirs * ours == 0 { 0 } else { 12 });
            let of = |all: i64, parts: i64| if parts == 0 { 1 } else { all / parts };
            // SAFETY: the data lives as long as the requests, and is left alone while they are active.
            unsafe {
                for _ in 0..2 {
                    let at = buffer(&mut data);
                    if process == 0 {
                        let each = of(each, theirs);
                        let request = mpi
                            .psend_init(at, theirs, each, INT, 1, 5, Comm::WORLD, Info::NULL)
                            .expect("made");
                        mpi.start(request).expect("started");
                        mpi.pready_range(0, theirs - 1, request).expect("ready");
                        wait(mpi, request).expect("sent");
                        mpi.request_free(request).expect("freed");
                        continue;
                    }
                    let all = Status { source: 0, tag: 5, error: None, count: 4 * each, cancelled: false };
                    // MPI_PROC_NULL; MPI_ANY_TAG
                    let nobody = Status { source: PROC_NULL, tag: -2, count: 0, ..all };
                    for (source, expected) in [(0, all), (PROC_NULL, nobody)] {
                        let each = of(each, ours);
                        let request = mpi.precv_init(at, ours, each, INT, source, 5, Comm::WORLD, Info::NULL);
                        let request = request.expect("made");
                        mpi.start(request).expect("started");
                        assert_eq!(wait(mpi, request).expect("received").1, expected, "{theirs} {ours}");
                        mpi.request_free(request).expect("freed");
                    }
                }
            }
        });
    }
}

/// Parts that are not as large together are refused.
#[test]
fn what_does_not_fit_is_told() {
    run(2, |mpi, process| {
        let mut data = [7; 6];
        // SAFETY: as above.
        unsafe {
            if process == 0 {
                let at = buffer(&mut data);
                let request = mpi.psend_init(at, 3, 2, INT, 1, 0, Comm::WORLD, Info::NULL).expect("made");
                mpi.start(request).expect("started");
                mpi.pready_range(0, 2, request).expect("ready");
                wait(mpi, request).expect("sent");
                mpi.request_free(request).expect("freed");
            } else {
                let at = buffer(&mut data);
                let request = mpi.precv_init(at, 1, 4, INT, 0, 0, Comm::WORLD, Info::NULL).expect("made");
                mpi.start(request).expect("started");
                // Who looks for a part hears of it where the request is complete, and not never.
                while !mpi.parrived(request, 0).expect("asked") {}
                assert!(wait(mpi, request).is_err());
                mpi.request_free(request).expect("freed");
            }
        }
    });
}

/// How the two sides divide it is for each to say, and of which elements it is: only all of it is the same.
#[test]
fn parts_may_end_within_an_element_of_the_receivers() {
    for (theirs, ours) in [(8, 1), (8, 2), (24, 1), (3, 4), (1, 2), (4, 2)] {
        run(2, |mpi, process| {
            let mut data: Vec<i32> = (0..24).collect();
            // SAFETY: the data lives as long as the requests, and is left alone while they are active.
            unsafe {
                if process == 0 {
                    let (at, each) = (buffer(&mut data), 24 / theirs);
                    let request =
                        mpi.psend_init(at, theirs, each, INT, 1, 0, Comm::WORLD, Info::NULL).expect("made");
                    mpi.start(request).expect("started");
                    for part in (0..theirs).rev() {
                        mpi.pready(part, request).expect("ready");
                    }
                    wait(mpi, request).expect("sent");
                    mpi.request_free(request).expect("freed");
                    return;
                }
                // Four blocks of six numbers, each element in two pieces with a hole: 3 numbers, 2, 3.
                let element = mpi.type_vector(2, 3, 5, INT, false).expect("legal");
                mpi.type_commit(element).expect("committed");
                let mut data = [-1; 32];
                let (at, count) = (buffer(&mut data), 4 / ours);
                let request =
                    mpi.precv_init(at, ours, count, element, 0, 0, Comm::WORLD, Info::NULL).expect("made");
                mpi.start(request).expect("started");
                for part in 0..ours {
                    while !mpi.parrived(request, part).expect("asked") {}
                }
                wait(mpi, request).expect("received");
                let mut expected = [-1; 32];
                for (value, nth) in (0..24).zip(0..) {
                    let (element, within) = (nth / 6, nth % 6);
                    expected[element * 8 + within + if within < 3 { 0 } else { 2 }] = value;
                }
                assert_eq!(data, expected, "{theirs} {ours}");
                mpi.request_free(request).expect("freed");
            }
        });
    }
}
