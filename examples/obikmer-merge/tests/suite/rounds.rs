//! Ranks in rounds of the index phase, one of which cannot use what comes.

use bdrun_worker::local;
use obikmer_merge::Error;
use obikmer_merge::sequence::kmer::Lengths;
use obikmer_merge::sequence::minimizer::Partitions;
use obikmer_merge::superkmer::cut::Cutter;
use obikmer_merge::superkmer::route::Router;
use obikmer_merge::superkmer::store::Store;

use crate::common::genomes::Random;

/// What rank 1 says of the source that it does not know is told by it, and known to all, in the next round.
/// In the last one it has it for itself, as the others go on to what follows.
#[test]
fn what_comes_and_cannot_be_used_fails_on_all_ranks() {
    const RANKS: usize = 3;
    let (lengths, partitions) = (Lengths { k: 21, m: 7 }, Partitions::new(RANKS));
    let text = Random(9).text(20_000);
    for window in [500, 1 << 20] {
        let results = local::run(RANKS, |comm| {
            let known = usize::from(comm.rank() != 1);
            let store = Store::new(lengths.k, known, partitions.subs());
            let mut router = Router::new(&comm, partitions, lengths.k, store, window);
            let mut cutter = Cutter::new(lengths, partitions);
            let read = cutter.letters(text.as_bytes(), &mut router).and_then(|()| cutter.end(&mut router));
            let result = router.finish(read);
            // Nobody is left in a round: all can talk.
            let all = comm.allgather_value(&comm.rank()).expect("talked");
            assert_eq!(all, [0, 1, 2]);
            result.map(|(store, _)| store.map(|_| ()))
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = match result {
                Ok(own) if window > 500 => own.err(),
                Ok(_) => panic!("rank {rank} knows nothing"),
                Err(error) => Some(error),
            };
            match error {
                None => assert!(window > 500 && rank != 1),
                Some(Error::Elsewhere { rank: 1, message }) => {
                    assert!(window == 500 && rank != 1 && message.contains("unknown source 0"), "{message}");
                }
                Some(error) => {
                    assert!(rank == 1 && error.to_string().contains("unknown source 0"), "{rank}: {error}");
                }
            }
        }
    }
}
