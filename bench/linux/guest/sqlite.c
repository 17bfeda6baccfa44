/* SPDX-License-Identifier: Apache-2.0 */
// A small database in memory.
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>

#include "bench/linux/guest/linuxbench.h"

static void Check(sqlite3* database, int status) {
  if (status == SQLITE_OK || status == SQLITE_DONE || status == SQLITE_ROW) return;
  errno = 0;
  Die(sqlite3_errmsg(database));
}

static void Execute(sqlite3* database, const char* sql) {
  Check(database, sqlite3_exec(database, sql, NULL, NULL, NULL));
}

uint64_t RunSqlite(const struct Run* run) {
  sqlite3* database = NULL;
  if (sqlite3_open(":memory:", &database) != SQLITE_OK) Die("sqlite3_open");
  Execute(database,
          "CREATE TABLE sales (id INTEGER PRIMARY KEY, shop INTEGER, item TEXT, n INTEGER)");
  Execute(database, "BEGIN");
  sqlite3_stmt* insert = NULL;
  Check(database, sqlite3_prepare_v2(database, "INSERT INTO sales (shop, item, n) VALUES (?, ?, ?)",
                                     -1, &insert, NULL));
  uint64_t state = 3;
  for (unsigned i = 0; i < run->count; ++i) {
    char item[32];
    const int length = snprintf(item, sizeof(item), "item-%u", NextRandom(&state) % 5000);
    sqlite3_bind_int(insert, 1, (int)(NextRandom(&state) % 100));
    sqlite3_bind_text(insert, 2, item, length, SQLITE_TRANSIENT);
    sqlite3_bind_int(insert, 3, (int)(NextRandom(&state) % 10));
    Check(database, sqlite3_step(insert));
    sqlite3_reset(insert);
  }
  sqlite3_finalize(insert);
  Execute(database, "COMMIT");
  Execute(database, "CREATE INDEX by_item ON sales (item)");
  sqlite3_stmt* query = NULL;
  Check(database,
        sqlite3_prepare_v2(database,
                           "SELECT shop, COUNT(*), SUM(n), MAX(item) FROM sales GROUP BY shop "
                           "UNION ALL SELECT 0, COUNT(*), SUM(n), item FROM sales "
                           "WHERE item LIKE 'item-1%' GROUP BY item ORDER BY 4, 1",
                           -1, &query, NULL));
  uint64_t sum = kSumStart;
  int status;
  while ((status = sqlite3_step(query)) == SQLITE_ROW) {
    for (int column = 0; column < 4; ++column) {
      sum =
          Sum(sum, sqlite3_column_text(query, column), (size_t)sqlite3_column_bytes(query, column));
    }
  }
  Check(database, status);
  sqlite3_finalize(query);
  sqlite3_close(database);
  return sum;
}
