//! Which step starts next: a state machine without threads, memory or a clock.
//!
//! Steps start in the order of the plan, and ahead of it where that can do no harm. Let the *head* be the
//! first step that has not started. A step starts
//!
//! 1. if what it waits for has finished, and
//! 2. if what is live and what it takes are within the budget, and
//! 3. if it is the head, or at each step q that has not started and comes before it in the plan: what is live
//!    at q when all goes one after the other, and the results of all that started ahead of q, this one's
//!    among them, are within the budget.
//!
//! The budget is kept by 2. Nothing gets stuck: when no step runs, all before the head have finished, so the
//! head waits for nothing. What is live then is what is live when all goes one after the other and at most
//! the results of those that started ahead of it; with what the head takes that is within the budget by 3,
//! which held for the head when each of them started. So the head starts, by 1 and 2.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::program::Program;

/// How far ahead of the head steps start.
const WINDOW: usize = 128;
/// So many are asked whether they can start.
const ASKED: usize = 8;

/// What has started and finished, and what may start.
#[derive(Debug)]
pub struct Dispatch<'a> {
    program: &'a Program,
    /// Steps that each one still waits for.
    waits: Vec<u32>,
    /// Uses that each stay still has.
    users: Vec<u32>,
    started: Vec<bool>,
    head: usize,
    /// Steps that started behind the head, ascending.
    ahead: Vec<u32>,
    /// Steps that wait for nothing but memory: those that compute, and those that transfer.
    ready: [BinaryHeap<Reverse<u32>>; 2],
    asked: Vec<u32>,
    used: u64,
    most: u64,
    running: usize,
    finished: usize,
}

impl<'a> Dispatch<'a> {
    /// Nothing has started.
    pub fn new(program: &'a Program) -> Self {
        let mut dispatch = Self {
            program,
            waits: program.waits.clone(),
            users: program.users.clone(),
            started: vec![false; program.steps.len()],
            head: 0,
            ahead: Vec::new(),
            ready: [BinaryHeap::new(), BinaryHeap::new()],
            asked: Vec::new(),
            used: 0,
            most: 0,
            running: 0,
            finished: 0,
        };
        for step in 0..program.steps.len() {
            if program.waits[step] == 0 {
                dispatch.ready[usize::from(program.steps[step].is_transfer())].push(Reverse(step as u32));
            }
        }
        dispatch
    }

    /// Whether all steps have finished.
    pub fn is_done(&self) -> bool {
        self.finished == self.program.steps.len()
    }

    /// How many steps run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Bytes that are taken now.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that were taken at most.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// A step that starts now, if one can: one that transfers, or one that computes.
    pub fn start(&mut self, transfer: bool) -> Option<usize> {
        let mut found = None;
        self.asked.clear();
        while self.asked.len() < ASKED {
            let Some(&Reverse(step)) = self.ready[usize::from(transfer)].peek() else { break };
            if step as usize >= self.head + WINDOW {
                break;
            }
            self.ready[usize::from(transfer)].pop();
            if self.can_start(step as usize) {
                found = Some(step as usize);
                break;
            }
            self.asked.push(step);
        }
        let asked = &self.asked;
        self.ready[usize::from(transfer)].extend(asked.iter().map(|&step| Reverse(step)));
        let step = found?;
        self.started[step] = true;
        self.used += self.program.takes[step];
        self.most = self.most.max(self.used);
        self.running += 1;
        if step == self.head {
            while self.started.get(self.head) == Some(&true) {
                self.head += 1;
            }
            let head = self.head as u32;
            let passed = self.ahead.partition_point(|&step| step < head);
            self.ahead.drain(..passed);
        } else {
            let place = self.ahead.partition_point(|&other| (other as usize) < step);
            self.ahead.insert(place, step as u32);
        }
        Some(step)
    }

    fn can_start(&self, step: usize) -> bool {
        let program = self.program;
        if self.used + program.takes[step] > program.budget {
            return false;
        }
        // What started ahead of each step on the way, from the last one back.
        let mut held = program.result[step];
        let farther = self.ahead.iter().rev().take_while(|&&other| other as usize > step);
        held += farther.map(|&other| program.result[other as usize]).sum::<u64>();
        for other in (self.head..step).rev() {
            if self.started[other] {
                held += program.result[other];
            } else if program.profile[other] + held > program.budget {
                return false;
            }
        }
        true
    }

    /// A step has finished. The stays that end are named to `release`; their bytes, which are returned, count
    /// as taken until they are given back.
    pub fn finish(&mut self, step: usize, mut release: impl FnMut(usize)) -> u64 {
        let program = self.program;
        let mut freed = 0;
        self.running -= 1;
        self.finished += 1;
        self.used -= program.takes[step] - program.result[step];
        for &stay in program.uses.row(step) {
            let users = &mut self.users[stay as usize];
            *users -= 1;
            if *users == 0 {
                freed += program.result[stay as usize];
                release(stay as usize);
            }
        }
        if self.users[step] == 0 {
            freed += program.result[step];
            release(step);
        }
        for &waiter in program.waiters.row(step) {
            let waits = &mut self.waits[waiter as usize];
            *waits -= 1;
            if *waits == 0 {
                self.ready[usize::from(program.steps[waiter as usize].is_transfer())].push(Reverse(waiter));
            }
        }
        freed
    }

    /// Gives bytes back that finished steps have freed.
    pub fn give_back(&mut self, freed: u64) {
        self.used -= freed;
    }

    /// Whether this step is the last to use a stay: nobody else will be given it, so it may have the value
    /// itself.
    pub fn is_last_use(&self, stay: usize) -> bool {
        self.users[stay] == 1
    }
}
