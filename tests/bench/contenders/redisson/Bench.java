import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.Arrays;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Redisson's producer, mover or worker, as the command line says; after "worker" the number of its consumers. */
public final class Bench {
    /** Connections that Redisson uses besides those on which consumers wait. */
    private static final int OTHER_CONNECTIONS = 24;

    private Bench() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // a library that prints does not disturb
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        int consumers = args.length > 1 ? Integer.parseInt(args[1]) : 1;
        RedissonClient client = connect(consumers);
        RBlockingQueue<Task> ready = client.getBlockingQueue("bench");
        switch (args[0]) {
            case "producer":
                Offers.warm(client);
                Program.serve(Offers.to(client, ready), answers);
                client.shutdown();
                break;
            case "mover":
                client.getDelayedQueue(ready);
                Thread.currentThread().join();
                break;
            case "worker":
                client.getDelayedQueue(ready);
                try (FileOutputStream journal = new FileOutputStream(System.getenv("BENCH_JOURNAL"), true)) {
                    work(ready, journal, consumers);
                }
                break;
            default:
                throw new IllegalArgumentException(Arrays.toString(args));
        }
    }

    private static RedissonClient connect(int consumers) {
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(System.getenv("BENCH_SERVER"));
        // Every consumer that waits holds a connection.
        server.setConnectionPoolSize(Math.max(server.getConnectionPoolSize(), consumers + OTHER_CONNECTIONS));
        return Redisson.create(config);
    }

    private static void work(RBlockingQueue<Task> ready, FileOutputStream journal, int consumers) throws Exception {
        Thread[] threads = new Thread[consumers];
        for (int each = 0; each < consumers; each++) {
            threads[each] = new Thread(() -> consume(ready, journal));
            threads[each].start();
        }
        for (Thread each : threads) {
            each.join();
        }
    }

    private static void consume(RBlockingQueue<Task> ready, FileOutputStream journal) {
        try {
            while (true) {
                arrive(ready.take(), journal);
            }
        } catch (InterruptedException | IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void arrive(Task task, FileOutputStream journal) throws IOException {
        Instant now = Instant.now();
        double late = now.getEpochSecond() + now.getNano() / 1e9 - task.due();
        journal.write(ByteBuffer.allocate(Double.BYTES).order(ByteOrder.LITTLE_ENDIAN).putDouble(late).array());
    }
}
