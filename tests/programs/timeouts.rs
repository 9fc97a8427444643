//! Timeouts of programs that are stopped much more often than they last.

use crate::common::chaos::{self, compiled, python_with};
use crate::common::{Directory, LIMIT, bdrun_args, skipped};

/// Under chaos, of which there is enough for that it would never end if each stop began them anew.
#[test]
fn they_pass_under_chaos() {
    let dir = Directory::new("timeouts");
    let Some(program) = compiled(&dir, "outside/timeouts.c", &[]) else { return };
    let options = ["-np", "1", "--chaos", "20", "--preload", "never", "--"];
    let program = program.display().to_string();
    let outcome = bdrun_args(options.into_iter().chain([program.as_str()])).within(LIMIT).succeed();
    for line in outcome.stdout.lines() {
        assert!(line.ends_with(" 3"), "{line}: {}", outcome.stderr);
    }
    assert_eq!(outcome.stdout.lines().count(), 8, "{}", outcome.stdout);
}

/// Who is traced is told of signals that are ignored, which else are not even sent.
#[test]
fn ignored_signals_break_off_no_call_in_parts() {
    let dir = Directory::new("ignored");
    let Some(program) = compiled(&dir, "outside/ignored.c", &["-pthread"]) else { return };
    let program = program.display().to_string();
    let expected = chaos::text(&chaos::plainly(std::slice::from_ref(&program)).stdout);
    assert_eq!(expected.matches(": broken off 0\n").count(), 4, "{expected}");
    let options = ["-np", "1", "--memory", "60M", "--preload", "never", "--", &program, "traced"];
    let outcome = bdrun_args(options).succeed();
    assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
}

/// A thread works on all of the memory until the other has seen so many ticks.
const TICKS: &str = "
import asyncio, sys, threading
size = int(sys.argv[1]) << 20
memory = bytearray(size)
done = False
def work():
    at, view = 0, memoryview(memory)
    while not done:
        view[at:at + (1 << 20)] = bytes([at >> 20 & 255]) * (1 << 20)
        at = (at + (1 << 20)) % size
async def main():
    global done
    thread = threading.Thread(target=work)
    thread.start()
    for tick in range(12):
        await asyncio.sleep(0.5)
    done = True
    thread.join()
asyncio.run(main())
print('done')
";

/// Without any chaos: a rank larger than the budget, which stands many times a second while parts of it
/// leave.
#[test]
fn a_loop_of_events_goes_on_in_parts() {
    if !python_with("asyncio") {
        return;
    }
    let options = ["-np", "1", "--memory", "120M", "--preload", "never", "--", "python3", "-c", TICKS, "200"];
    let outcome = bdrun_args(options).succeed();
    if outcome.stderr.contains("cannot be paged") {
        return skipped("parts", "parts of a rank may not be paged here (CAP_SYS_PTRACE)");
    }
    assert_eq!(outcome.stdout, "done\n", "{}", outcome.stderr);
}
