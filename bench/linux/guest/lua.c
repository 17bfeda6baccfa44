/* SPDX-License-Identifier: Apache-2.0 */
// The Lua interpreter.
#include <errno.h>
#include <lua5.4/lauxlib.h>
#include <lua5.4/lua.h>
#include <lua5.4/lualib.h>

#include "bench/linux/guest/linuxbench.h"

// Nothing here depends on the order of a table's hash part, which differs from run to run.
static const char kScript[] =
    "local function sieve(n)\n"
    "  local composite, count = {}, 0\n"
    "  for i = 2, n do\n"
    "    if not composite[i] then\n"
    "      count = count + 1\n"
    "      for k = i * i, n, i do composite[k] = true end\n"
    "    end\n"
    "  end\n"
    "  return count\n"
    "end\n"
    "local state = 42\n"
    "local function random(n)\n"
    "  state = (state * 1103515245 + 12345) & 0x7fffffff\n"
    "  return (state >> 8) % n\n"
    "end\n"
    "local function sort(n)\n"
    "  local t = {}\n"
    "  for i = 1, n do t[i] = random(1000000) end\n"
    "  table.sort(t, function(x, y) return x > y end)\n"
    "  return t[1] + t[n // 2] + t[n]\n"
    "end\n"
    "local function strings(n)\n"
    "  local parts, counts = {}, {}\n"
    "  for i = 1, n do parts[i] = string.format('%x-%d', random(4096), i % 97) end\n"
    "  local text = table.concat(parts, ' ')\n"
    "  for word in text:gmatch('%x+') do counts[word] = (counts[word] or 0) + 1 end\n"
    "  return #text + (counts['a'] or 0) + #text:gsub('1', 'one')\n"
    "end\n"
    "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
    "return sieve(200000) + sort(20000) + strings(20000) + fib(24)\n";

uint64_t RunLua(const struct Run* run) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < run->count; ++i) {
    lua_State* lua = luaL_newstate();
    if (lua == NULL) Die("luaL_newstate");
    luaL_openlibs(lua);
    if (luaL_dostring(lua, kScript) != LUA_OK) {
      errno = 0;
      Die(lua_tostring(lua, -1));
    }
    sum += (uint64_t)lua_tointeger(lua, -1);
    lua_close(lua);
  }
  return sum;
}
