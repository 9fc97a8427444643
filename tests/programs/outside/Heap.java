import java.lang.management.ManagementFactory;
import java.util.TreeMap;

/** Maps, arrays and strings of several threads, made and dropped so many times; one line that depends on them. With a garbage
 *  collector that must have run. Arguments: rounds, records of each thread. */
class Heap {
    record Item(String name, long[] numbers, Item before) {}

    static long work(int thread, int rounds, int records) {
        TreeMap<Integer, Item> kept = new TreeMap<>();
        long x = thread + 1, sum = 0;
        for (int r = 0; r < rounds; r++) {
            for (int i = 0; i < records / 2; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                int key = (int) ((x >>> 33) % records);
                Item old = kept.get(key);
                kept.put(key, new Item(thread + ":" + x, new long[(int) (x >>> 60)], old == null ? null : new Item(old.name, old.numbers, null)));
            }
            if (r % 3 == 0) for (int i = r % 7; i < records; i += 7) kept.remove(i);
            for (var entry : kept.entrySet()) {
                Item item = entry.getValue();
                sum = sum * 31 + entry.getKey() + item.name.hashCode() + item.numbers.length + (item.before == null ? 0 : item.before.name.length());
            }
        }
        return sum;
    }

    public static void main(String[] args) throws InterruptedException {
        int rounds = Integer.parseInt(args[0]), records = Integer.parseInt(args[1]);
        long[] sums = new long[3];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < threads.length; t++) {
            int thread = t;
            threads[t] = new Thread(() -> sums[thread] = work(thread, rounds, records));
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        long collections = 0;
        for (var collector : ManagementFactory.getGarbageCollectorMXBeans()) collections += collector.getCollectionCount();
        if (collections < 3) throw new IllegalStateException("only " + collections + " garbage collections");
        System.out.println(Long.toHexString(sums[0]) + " " + Long.toHexString(sums[1]) + " " + Long.toHexString(sums[2]));
    }
}
