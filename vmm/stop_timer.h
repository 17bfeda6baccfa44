// Asks again for a stop that has not been obeyed. A signal finds translated code wherever it
// happens to be, and there are instructions (in stubs, in forwarding jumps) from which it cannot
// tell which translation runs next; one of the following attempts finds a better place.
#ifndef ALIBI_VMM_STOP_TIMER_H_
#define ALIBI_VMM_STOP_TIMER_H_

#include <time.h>

#include <atomic>

namespace alibi::runtime {
class Engine;
}

namespace alibi::vmm {

class StopTimer {
 public:
  StopTimer() = default;
  ~StopTimer();
  StopTimer(const StopTimer&) = delete;
  StopTimer& operator=(const StopTimer&) = delete;

  // On the thread that is going to run the engine, around it. A host without timers does without.
  void Enter(runtime::Engine* engine);
  void Leave();

  // After each Engine::Run().
  void Disarm() {
    if (armed_.load(std::memory_order_relaxed)) Stop();
  }
  // From any thread or signal handler: RequestStop() is called on the engine's thread until
  // Disarm().
  void Arm();

 private:
  void Create();
  void Stop();

  timer_t timer_{};
  std::atomic<bool> exists_ = false;
  std::atomic<bool> armed_ = false;
  int thread_id_ = 0;
};

}  // namespace alibi::vmm

#endif  // ALIBI_VMM_STOP_TIMER_H_
