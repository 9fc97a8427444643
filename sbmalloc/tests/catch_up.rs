//! What a process that computes uses of what is out, and bringing in the rest when that is much. A program of
//! its own: it is about all arenas of the process.

#[path = "conformance/common.rs"]
#[expect(dead_code, reason = "it serves other test programs too")]
mod common;
mod moves;

use common::{Block, combinations};
use moves::Moves;
use sbmalloc::{Arena, ArenaOptions, PAGE, PROCESS, pager};

/// Bytes.
const MIB: usize = 1 << 20;

#[test]
fn the_rest_is_brought_in_once() {
    for (tracker, store, huge) in combinations() {
        let parts = (tracker, store, huge);
        let options = ArenaOptions { reserve: 1 << 30, tracker: Some(tracker), store: Some(store), huge };
        let arena = Arena::new(&options).expect("arena");
        let mut block = Block::new(&arena, 64 * MIB);
        block.fill(1);
        assert_eq!(pager::touched(), Ok(None), "{parts:?}: nothing is out");
        let all = pager::in_ram();
        PROCESS.page_out().expect("evict");
        // Room for a half, which is not taken for touched.
        let (_, whole) = PROCESS.page_in_for(1, &mut |_| 32 * MIB).expect("restore");
        assert!(!whole);
        pager::begin_phase(1);
        let half = pager::touched().expect("pagemap").expect("a half is out");
        assert!(half.in_ram <= 32 * MIB && half.in_ram >= 30 * MIB && !half.much, "{parts:?}: {half:?}");
        // One page is not much, and counts.
        let mut sum = u64::from(block.bytes()[62 * MIB]);
        let one = pager::touched().expect("pagemap").expect("out");
        assert!(one.in_ram >= half.in_ram + PAGE && !one.much, "{parts:?}: {one:?}");
        // More than a half of that: the kernel may take some pages away again, to move them.
        sum += block.bytes()[36 * MIB..58 * MIB].iter().step_by(PAGE).map(|&b| u64::from(b)).sum::<u64>();
        assert!(sum > 0);
        let much = pager::touched().expect("pagemap").expect("out");
        assert!(much.in_ram >= half.in_ram + 16 * MIB && much.much, "{parts:?}: {much:?}");
        // Written where it is, like anything that is out.
        block.bytes_mut()[50 * MIB] ^= 1;
        let (_, whole) = PROCESS.page_in_for(pager::EVERYTHING, &mut |_| usize::MAX).expect("restore");
        assert!(whole);
        pager::begin_phase(1);
        assert_eq!(pager::in_ram(), all, "{parts:?}");
        assert!(!pager::is_evicted(), "{parts:?}");
        assert_eq!(pager::touched(), Ok(None), "{parts:?}: nothing is out");
        block.bytes_mut()[50 * MIB] ^= 1;
        block.check(1);
        pager::verify_touched().expect("sound");
        // Without what was there before the arena.
        PROCESS.page_out_to(all - 40 * MIB, 1, &mut |_| {}).expect("evict");
        assert!(pager::in_ram() <= all - 40 * MIB, "{parts:?}");
        block.check(1);
        PROCESS.page_in().expect("restore");
        block.check(1);
    }
}
