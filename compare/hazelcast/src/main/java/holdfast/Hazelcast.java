package holdfast;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.config.Config;
import com.hazelcast.config.InMemoryFormat;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Put, get and remove of a map of Hazelcast by a client over loopback, as many threads at once as `holdfast-bench space --work remote`
 * has connections. Prints a line for each operation: its name, operations a second, p50 and p99 in microseconds.
 *
 * Usage: Hazelcast member | client [threads] [seconds] [keys] [bytes]
 */
public final class Hazelcast {
    private static final String MAP = "bench";
    private static final int PORT = 5799;

    private interface Operation {
        void run(IMap<Long, byte[]> map, long key, byte[] value);
    }

    public static void main(String[] words) throws Exception {
        if (words.length > 0 && words[0].equals("member")) {
            member();
        } else if (words.length > 0 && words[0].equals("client")) {
            client(number(words, 1, 50), number(words, 2, 5), number(words, 3, 20_000), number(words, 4, 1024));
        } else {
            System.err.println("say `member`, or `client [threads] [seconds] [keys] [bytes]`");
            System.exit(2);
        }
    }

    private static int number(String[] words, int at, int otherwise) {
        return words.length > at ? Integer.parseInt(words[at]) : otherwise;
    }

    /** A member alone, without a second copy of anything, until it is killed. */
    private static void member() throws InterruptedException {
        Config config = new Config();
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.setProperty("hazelcast.logging.type", "none");
        config.getNetworkConfig().setPort(PORT).setPortAutoIncrement(false);
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        config.getNetworkConfig().getJoin().getAutoDetectionConfig().setEnabled(false);
        config.getNetworkConfig().getJoin().getMulticastConfig().setEnabled(false);
        config.getMapConfig(MAP).setBackupCount(0).setInMemoryFormat(InMemoryFormat.BINARY);
        com.hazelcast.core.Hazelcast.newHazelcastInstance(config);
        System.out.println("ready");
        Thread.currentThread().join();
    }

    private static void client(int threads, int seconds, int keys, int bytes) throws Exception {
        ClientConfig config = new ClientConfig();
        config.setProperty("hazelcast.logging.type", "none");
        config.getNetworkConfig().addAddress("127.0.0.1:" + PORT);
        HazelcastInstance client = HazelcastClient.newHazelcastClient(config);
        try {
            IMap<Long, byte[]> map = client.getMap(MAP);
            byte[] value = new byte[bytes];
            new Random(1).nextBytes(value);
            for (long key = 0; key < keys; key++) {
                map.set(key, value);
            }
            // Once unheard: the first seconds of a Java program are its compiler's.
            for (boolean heard : new boolean[] {false, true}) {
                measure(map, "put", heard, threads, seconds, keys, value, (to, key, what) -> to.set(key, what));
                measure(map, "get", heard, threads, seconds, keys, value, (to, key, what) -> {
                    if (to.get(key) == null) {
                        throw new IllegalStateException("a key that was put is not there");
                    }
                });
                measure(map, "remove", heard, threads, seconds, keys, value, (to, key, what) -> to.remove(key));
                for (long key = 0; key < keys; key++) {
                    map.set(key, value);
                }
            }
        } finally {
            client.shutdown();
        }
    }

    private static void measure(IMap<Long, byte[]> map, String name, boolean heard, int threads, int seconds, int keys,
            byte[] value, Operation operation) throws Exception {
        AtomicLong next = new AtomicLong();
        boolean once = name.equals("remove");
        long begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        long[][] times = new long[threads][];
        Throwable[] failed = new Throwable[1];
        Thread[] running = new Thread[threads];
        for (int number = 0; number < threads; number++) {
            int mine = number;
            running[number] = new Thread(() -> {
                long[] taken = new long[1 << 16];
                int count = 0;
                Random random = new Random(mine);
                try {
                    while (System.nanoTime() < end) {
                        // Each key is removed once: what is not there would cost less.
                        long key = once ? next.getAndIncrement() : random.nextInt(keys);
                        if (key >= keys) {
                            break;
                        }
                        long before = System.nanoTime();
                        operation.run(map, key, value);
                        if (count == taken.length) {
                            taken = Arrays.copyOf(taken, 2 * count);
                        }
                        taken[count++] = System.nanoTime() - before;
                    }
                } catch (RuntimeException failure) {
                    failed[0] = failure;
                }
                times[mine] = Arrays.copyOf(taken, count);
            });
            running[number].start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double took = (System.nanoTime() - begin) / 1e9;
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        long[] all = Arrays.stream(times).flatMapToLong(Arrays::stream).sorted().toArray();
        if (heard && all.length > 0) {
            System.out.printf("%s %.0f/s p50 %.0f us p99 %.0f us%n", name, all.length / took,
                    all[all.length / 2] / 1e3, all[(int) (all.length * 0.99)] / 1e3);
        }
    }

    private Hazelcast() {}
}
