package shop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;

/** Uses the shared queue from the shell: REDIS QUEUE offer|remove|take, and what these need. */
public final class Main {
    private static final String USAGE =
            "REDIS QUEUE offer TASK SECONDS [ARGS] | remove TASK ID [ARGS] | take [SECONDS]; ARGS is a JSON array";

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            throw new IllegalArgumentException(USAGE);
        }
        try (SharedQueue queue = new SharedQueue(args[0], args[1])) {
            switch (args[2]) {
                case "offer":
                    System.out.println(queue.offer(args[3], array(args, 5), seconds(args[4])));
                    break;
                case "remove":
                    queue.remove(args[3], args[4], array(args, 5));
                    break;
                case "take":
                    take(queue, seconds(args.length > 3 ? args[3] : "60"));
                    break;
                default:
                    throw new IllegalArgumentException(USAGE);
            }
        }
    }

    /** Takes one task, prints it, and answers. */
    private static void take(SharedQueue queue, Duration timeout) throws InterruptedException {
        JsonNode message = queue.take(timeout);
        if (message == null) {
            System.out.println("nothing came");
            return;
        }
        JsonNode args = SharedQueue.body(message).get(0);
        System.out.println(message.at("/headers/task").asText() + " " + message.at("/headers/id").asText() + " " + args);
        queue.answer(message, "the JVM has done " + args);
    }

    private static ArrayNode array(String[] args, int at) throws Exception {
        return (ArrayNode) new ObjectMapper().readTree(args.length > at ? args[at] : "[]");
    }

    private static Duration seconds(String text) {
        return Duration.ofMillis(Math.round(1000 * Double.parseDouble(text)));
    }
}
