// The events of a subgraph in this process, and the operations that wait for them. Nothing is stored: an operation
// receives the events that are published after it began.

/**
 * Events for any number of operations. `begin(matches)` is for the resolver of a subscription field: it
 * returns the iterator for graphql-js, with the events for which `matches(event)` is true.
 */
export function createEventLog() {
  const operations = new Set();
  return {
    begin(matches = () => true) {
      const operation = createOperation(matches, () => operations.delete(operation));
      operations.add(operation);
      return operation.iterator;
    },
    publish(event) {
      for (const operation of operations) operation.push(event);
    },
    /** Ends all operations after the events that were published. */
    complete() {
      for (const operation of operations) operation.complete();
    },
    /** The number of operations that have not ended. */
    count: () => operations.size,
  };
}

function createOperation(matches, onEnd) {
  const waiting = [];
  let isOver = false;
  let wake = () => {};
  const end = () => {
    isOver = true;
    onEnd();
    wake();
  };
  return {
    push(event) {
      if (isOver || !matches(event)) return;
      waiting.push(event);
      wake();
    },
    complete: end,
    iterator: {
      [Symbol.asyncIterator]() {
        return this;
      },
      async next() {
        while (waiting.length === 0 && !isOver) {
          await new Promise((resolve) => {
            wake = resolve;
          });
        }
        return waiting.length > 0 ? { done: false, value: waiting.shift() } : { done: true, value: undefined };
      },
      async return() {
        waiting.length = 0;
        end();
        return { done: true, value: undefined };
      },
    },
  };
}
