//! Lines whole, bytes exact, whatever the pieces they come in.

use super::*;
use std::io::{Read, Write};

struct Rig {
    sink: Sink,
    collector: std::thread::JoinHandle<String>,
}

fn rig(manner: Manner) -> Rig {
    let (reader, writer) = sys::pipe().unwrap();
    let collector = std::thread::spawn(move || {
        let mut text = String::new();
        std::fs::File::from(reader).read_to_string(&mut text).unwrap();
        text
    });
    Rig { sink: Sink::new(writer, Stream::Stdout, manner), collector }
}

fn lines() -> Manner {
    Manner { spool: Some(Spool::nameless()), ..Manner::default() }
}

impl Rig {
    fn feed(&mut self, line: &mut Line, bytes: &[u8]) {
        let (reader, writer) = sys::pipe().unwrap();
        // Where there are many pipes a new one may take a page and no more.
        for part in bytes.chunks(4096) {
            std::fs::File::from(writer.try_clone().unwrap()).write_all(part).unwrap();
            assert_eq!(self.sink.read_from(&reader, line), Got::Bytes(part.len()));
        }
    }

    fn result(mut self) -> String {
        self.sink.flush();
        assert!(self.sink.take_failure().is_none());
        drop(self.sink);
        self.collector.join().unwrap()
    }
}

#[test]
fn half_lines_wait_for_their_end() {
    let mut rig = rig(lines());
    let (mut a, mut b) = (Line::new(1, Vec::new()), Line::new(2, Vec::new()));
    rig.feed(&mut a, b"one\ntw");
    rig.feed(&mut b, b"uno\ndue\ntr");
    rig.feed(&mut a, b"o");
    rig.feed(&mut a, b"\n");
    rig.sink.end(&mut b);
    rig.sink.end(&mut a);
    assert_eq!(rig.result(), "one\nuno\ndue\ntwo\ntr");
}

#[test]
fn prefixes_stand_before_each_line_once() {
    let mut rig = rig(lines());
    let mut a = Line::new(1, b"[7] ".to_vec());
    rig.feed(&mut a, b"\nx\nhalf");
    rig.feed(&mut a, b" line");
    rig.sink.end(&mut a);
    assert_eq!(rig.result(), "[7] \n[7] x\n[7] half line");
}

#[test]
fn a_raw_stream_gets_nothing_added() {
    let mut rig = rig(Manner { raw: true, ..lines() });
    let mut a = Line::new(1, Vec::new());
    rig.feed(&mut a, b"prompt> ");
    assert_eq!(rig.sink.filled, 8);
    rig.feed(&mut a, b"x\ny");
    rig.sink.end(&mut a);
    assert_eq!(rig.result(), "prompt> x\ny");
}

#[test]
fn a_long_line_stays_whole_if_nobody_interrupts() {
    for prefix in ["", "[1] "] {
        let text = "x".repeat(400_000);
        let mut rig = rig(lines());
        let mut a = Line::new(1, prefix.into());
        rig.feed(&mut a, text.as_bytes());
        assert_eq!(rig.sink.filled, 0);
        rig.feed(&mut a, b"end\nnext\n");
        assert_eq!(rig.result(), format!("{prefix}{text}end\n{prefix}next\n"));
    }
}

/// More than once, with others between, and with an end or without.
#[test]
fn a_line_beyond_the_limit_waits_in_the_spool_for_its_end() {
    for prefix in ["", "[1] "] {
        let spool = Spool::nameless();
        let mut rig = rig(Manner { spool: Some(spool.clone()), ..Manner::default() });
        let long = "y".repeat(LONGEST_LINE + 70_000);
        let (mut a, mut b) = (Line::new(1, prefix.into()), Line::new(2, Vec::new()));
        for round in 0..2 {
            rig.feed(&mut a, long.as_bytes());
            rig.feed(&mut b, b"other\n");
            rig.feed(&mut a, long.as_bytes());
            assert!(spool.usage().0 > LONGEST_LINE as u64);
            rig.feed(&mut a, if round == 0 { b"rest\nlast\n" } else { b"no end" });
        }
        rig.sink.end(&mut a);
        rig.feed(&mut b, b"third\n");
        assert_eq!(spool.usage(), (0, 0));
        let text = rig.result();
        let expected = format!(
            "other\n{prefix}{long}{long}rest\n{prefix}last\nother\n{prefix}{long}{long}no end\nthird\n"
        );
        assert!(text == expected, "{} bytes instead of {}", text.len(), expected.len());
    }
}

/// A thousand programs that draw a bar, and none ends its line.
#[test]
fn lines_that_have_begun_hold_little_memory_in_all() {
    for (prefix, count, length) in [("", 40, 500_000), ("[1] ", 40, 500_000), ("[1] ", 400, 10)] {
        let spool = Spool::nameless();
        let mut rig = rig(Manner { spool: Some(spool.clone()), ..Manner::default() });
        let mut lines: Vec<Line> = (0..count).map(|key| Line::new(key, prefix.into())).collect();
        let text = "z".repeat(length);
        for line in &mut lines {
            rig.feed(line, text.as_bytes());
        }
        let most = MEMORY + LONGEST_LINE + 2 * LEAST * lines.len();
        let held: usize = lines.iter().map(|line| line.start.capacity()).sum();
        assert!(held == rig.sink.started && held <= most, "{held} {}", rig.sink.started);
        assert_eq!(spool.usage().0 > 0, length > LEAST, "{prefix} {length}");
        for line in &mut lines {
            rig.feed(line, b".\n");
        }
        lines.iter_mut().for_each(|line| rig.sink.end(line));
        assert_eq!((rig.sink.started, spool.usage()), (0, (0, 0)));
        assert!(rig.result() == format!("{prefix}{text}.\n").repeat(lines.len()), "{prefix} {length}");
    }
}

#[test]
fn a_last_line_gets_an_end_where_another_follows_or_others_write_too() {
    for (ends_lines, expected) in [(false, "a\nb\nc\na goes on"), (true, "a\nb\nc\na goes on\n")] {
        let mut rig = rig(Manner { ends_lines, ..lines() });
        let (mut a, mut b) = (Line::new(1, Vec::new()), Line::new(2, Vec::new()));
        rig.feed(&mut a, b"a");
        rig.sink.end(&mut a);
        rig.feed(&mut b, b"b\nc");
        rig.sink.end(&mut b);
        // A child that was left behind.
        rig.feed(&mut a, b"a goes on");
        rig.sink.end(&mut a);
        assert_eq!(rig.result(), expected);
    }
}

/// Nothing is lost: the line is written as it comes, and the error told.
#[test]
fn a_spool_that_is_full_is_told() {
    let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut rig = rig(Manner { spool: Some(Spool::new(full)), ..Manner::default() });
    let long = "z".repeat(LONGEST_LINE + 70_000);
    let mut a = Line::new(1, b"[1] ".to_vec());
    rig.feed(&mut a, long.as_bytes());
    assert_eq!(rig.sink.take_unheld().unwrap().kind(), io::ErrorKind::StorageFull);
    rig.feed(&mut a, b"rest\n");
    assert!(rig.sink.take_unheld().is_none());
    assert!(rig.result() == format!("[1] {long}rest\n"));
}
