/**
 * A task's arguments: what is offered and taken.
 *
 * @param due in s since the epoch
 */
record Task(double due, String payload) {}
