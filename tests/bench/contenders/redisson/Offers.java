import java.util.Arrays;
import java.util.HexFormat;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RFuture;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisTimeoutException;

/** What a producer does, through the public API. */
record Offers(RBlockingQueue<Task> ready, RDelayedQueue<Task> delayed) implements Program.Producer {
    private static final String PAYLOAD = payload();

    /** Tasks offered one at a time, and 1,000 at a time, until the virtual machine has compiled what it does most. */
    private static final int WARM_ONE = 5_000, WARM_BULK = 10;

    /**
     * The backlog from which on remove(e) is not tried: it gets one element after the other by its index, which itself
     * takes the longer the more there are. 100,000 take it seconds.
     */
    private static final int REMOVABLE = 150_000;

    /** Ends the transfer task, or the backlog would move before the mover starts; offers need none. */
    static Offers to(RedissonClient client, RBlockingQueue<Task> ready) {
        RDelayedQueue<Task> delayed = client.getDelayedQueue(ready);
        delayed.destroy();
        return new Offers(ready, delayed);
    }

    /** Offers to a queue that is then deleted: a producer that has just started is not usual. */
    static void warm(RedissonClient client) {
        Offers offers = to(client, client.getBlockingQueue("warm"));
        double[] dues = new double[1_000];
        Arrays.fill(dues, System.currentTimeMillis() / 1e3 + 3600);
        for (int each = 0; each < WARM_BULK; each++) {
            offers.bulk(dues);
        }
        for (int each = 0; each < WARM_ONE; each++) {
            offers.one(dues[0]);
        }
        offers.delayed.delete();
    }

    @Override
    public void one(double due) {
        long delayMs = delayMs(due);
        if (delayMs > 0) {
            delayed.offer(new Task(due, PAYLOAD), delayMs, TimeUnit.MILLISECONDS);
        } else {
            ready.offer(new Task(due, PAYLOAD));
        }
    }

    /** Offers all before it waits for the first answer; a batch (RBatch) has no delayed queues. */
    @Override
    public void bulk(double[] dues) {
        CompletableFuture<?>[] sent = new CompletableFuture<?>[dues.length];
        for (int each = 0; each < dues.length; each++) {
            sent[each] = offer(new Task(dues[each], PAYLOAD)).toCompletableFuture();
        }
        CompletableFuture.allOf(sent).join();
    }

    @Override
    public void beforeCancel() {
        if (waiting() > REMOVABLE) {
            throw new Program.Cannot("not tried: remove(e) takes time with the square of the backlog, here minutes");
        }
    }

    @Override
    public void cancel(double due) {
        boolean removed;
        try {
            removed = delayed.remove(new Task(due, PAYLOAD));
        } catch (RedisTimeoutException error) {
            removed = false;
        }
        if (!removed) { // by the call that is made again after the timeout
            throw new Program.Cannot("remove(e) takes longer than the client's timeout, 3 s");
        }
    }

    @Override
    public int waiting() {
        return delayed.size();
    }

    private RFuture<?> offer(Task task) {
        long delayMs = delayMs(task.due());
        return delayMs > 0 ? delayed.offerAsync(task, delayMs, TimeUnit.MILLISECONDS) : ready.offerAsync(task);
    }

    /** Redisson counts in whole ms: rounded up, so that no task begins too early. */
    private static long delayMs(double due) {
        return (long) Math.ceil(due * 1e3) - System.currentTimeMillis();
    }

    private static String payload() {
        byte[] bytes = new byte[490];
        new Random(1).nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
