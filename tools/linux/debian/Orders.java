// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * What the row java runs: a server's load as SPECjbb has it, of warehouses with a thread each that take
 * orders, deliver them and report. Orders TRANSACTIONS WAREHOUSES; a line for each warehouse.
 */
public final class Orders {
  private record Line(int item, int quantity, long cents) {}

  private record Order(long id, int customer, ArrayList<Line> lines) {
    long total() {
      return lines.stream().mapToLong(line -> line.quantity() * line.cents()).sum();
    }
  }

  private static final int ITEMS = 20_000;
  private static final int CUSTOMERS = 3_000;

  // Of all warehouses; sums, so that no order among the threads shows.
  private static final ConcurrentHashMap<Integer, Long> sold = new ConcurrentHashMap<>();

  private static final class Warehouse implements Callable<String> {
    private final TreeMap<Long, Order> open = new TreeMap<>();
    private final Map<Integer, Long> balances = new TreeMap<>();
    private final int[] stock = new int[ITEMS];
    private final int number;
    private final int transactions;
    private long state;
    private long text = 17;

    Warehouse(int number, int transactions) {
      this.number = number;
      this.transactions = transactions;
      state = number;
    }

    private int below(int limit) {
      state = state * 6364136223846793005L + 1442695040888963407L;
      return (int) ((state >>> 33) % limit);
    }

    private void take(long id) {
      ArrayList<Line> lines = new ArrayList<>();
      for (int i = 5 + below(10); i > 0; --i) {
        int item = below(ITEMS);
        int quantity = 1 + below(9);
        if (stock[item] < quantity) stock[item] += 50;
        stock[item] -= quantity;
        lines.add(new Line(item, quantity, 100 + item % 977));
        sold.merge(item % 100, (long) quantity, Long::sum);
      }
      open.put(id, new Order(id, below(CUSTOMERS), lines));
    }

    private void deliver() {
      for (int i = 0; i < 10 && open.size() > 200; ++i) {
        Order order = open.pollFirstEntry().getValue();
        balances.merge(order.customer(), order.total(), Long::sum);
      }
    }

    private void report() {
      StringBuilder page = new StringBuilder();
      for (Order order : open.tailMap(open.firstKey() + open.size() / 2).values()) {
        page.append(order.id()).append(' ').append(order.customer()).append(' ');
        page.append(String.format("%d.%02d%n", order.total() / 100, order.total() % 100));
      }
      text = text * 31 + page.toString().hashCode();
    }

    @Override
    public String call() {
      for (long id = 0; id < transactions; ++id) {
        take(id);
        if (id % 8 == 7) deliver();
        if (id % 500 == 499) report();
      }
      long sum = balances.values().stream().mapToLong(Long::longValue).sum();
      return "warehouse " + number + ": " + open.size() + " open, " + sum + " cents, " + text;
    }
  }

  public static void main(String[] arguments) throws Exception {
    int transactions = Integer.parseInt(arguments[0]);
    int warehouses = Integer.parseInt(arguments[1]);
    var pool = Executors.newFixedThreadPool(warehouses);
    ArrayList<Future<String>> results = new ArrayList<>();
    for (int i = 1; i <= warehouses; ++i) results.add(pool.submit(new Warehouse(i, transactions)));
    for (Future<String> result : results) System.out.println(result.get());
    pool.shutdown();
    System.out.println(new TreeMap<>(sold).hashCode());
  }
}
