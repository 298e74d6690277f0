import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;

/** The program of a producer, as tests/bench/program.py is for those in Python. */
final class Program {
    /** What a producer can do. A task is known by its due time. */
    interface Producer {
        void one(double due);

        void bulk(double[] dues);

        /** Throws Cannot where cancelling is not to be tried. */
        void beforeCancel();

        void cancel(double due);

        int waiting();
    }

    /** The contender cannot do that. */
    static final class Cannot extends RuntimeException {
        private static final long serialVersionUID = 1;

        Cannot(String why) {
            super(why);
        }
    }

    /** Messages in one bulk call. */
    private static final int BULK = 1_000;

    /** How many due times are kept for later cancelling. */
    private static final int KEPT = 2_000;

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Producer producer;
    private List<Double> kept = new ArrayList<>();
    private long seen;

    private Program(Producer producer) {
        this.producer = producer;
    }

    /** Answers commands until stdin ends. */
    static void serve(Producer producer, PrintStream answers) throws Exception {
        Program program = new Program(producer);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer;
            try {
                answer = Map.of("value", program.answer(JSON.readTree(line)));
            } catch (Cannot reason) {
                answer = Map.of("cannot", reason.getMessage());
            } catch (Exception error) {
                answer = Map.of("error", error.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private Object answer(JsonNode command) {
        int count = command.path("count").asInt();
        switch (command.get("do").asText()) {
            case "enqueue":
                double first = command.get("first").asDouble();
                return enqueue(count, first, command.get("last").asDouble(), command.get("bulk").asBoolean());
            case "cancel":
                return cancel(count, command.get("within_s").asDouble());
            case "waiting":
                return producer.waiting();
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    /** Enqueues tasks whose due times are random between two. Returns how long that took, in s. */
    private Map<String, Double> enqueue(int count, double first, double last, boolean bulk) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        double[] dues = DoubleStream.generate(() -> first + random.nextDouble() * (last - first)).limit(count).toArray();
        long cpu = PROCESS.getProcessCpuTime();
        long begun = System.nanoTime();
        if (bulk) {
            for (int start = 0; start < count; start += BULK) {
                producer.bulk(Arrays.copyOfRange(dues, start, Math.min(start + BULK, count)));
            }
        } else {
            for (double due : dues) {
                producer.one(due);
            }
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        double cpuS = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double aheadS = first - System.currentTimeMillis() / 1e3;
        keep(dues);
        return Map.of("seconds", seconds, "cpu_s", cpuS, "ahead_s", aheadS);
    }

    /** Cancels random tasks of those enqueued, one by one. Returns how long each took, in s. */
    private List<Double> cancel(int count, double withinS) {
        producer.beforeCancel();
        List<Double> times = new ArrayList<>();
        long until = System.nanoTime() + (long) (withinS * 1e9);
        while (times.size() < count && !kept.isEmpty() && System.nanoTime() < until) {
            double due = kept.remove(kept.size() - 1);
            long begun = System.nanoTime();
            producer.cancel(due);
            times.add((System.nanoTime() - begun) / 1e9);
        }
        return times;
    }

    /** Keeps a random sample of all due times, those of earlier commands as likely as these. */
    private void keep(double[] dues) {
        seen += dues.length;
        int fresh = seen <= KEPT ? dues.length : (int) Math.round((double) KEPT * dues.length / seen);
        List<Double> all = sample(kept, KEPT - fresh);
        all.addAll(sample(DoubleStream.of(dues).boxed().collect(Collectors.toList()), fresh));
        kept = sample(all, KEPT);
    }

    /** Returns as many of these in random order, or all if there are fewer. Shuffles the list in place. */
    private static List<Double> sample(List<Double> all, int most) {
        Collections.shuffle(all);
        return new ArrayList<>(all.subList(0, Math.min(most, all.size())));
    }
}
