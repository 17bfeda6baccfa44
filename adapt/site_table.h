// The sites that misbehaved, keyed by physical and linear address of their instruction.
#ifndef ALIBI_ADAPT_SITE_TABLE_H_
#define ALIBI_ADAPT_SITE_TABLE_H_

#include <vector>

#include "adapt/policy.h"

namespace alibi::adapt {

// Fixed capacity, open addressing; no allocation after construction and no vector registers, so
// that the fault handler and fast callouts may use it. When full, unknown sites share one record
// that is never convicted.
class SiteTable {
 public:
  explicit SiteTable(u32 capacity_log2 = 16);
  SiteRecord* Find(u64 pc, u64 phys);          // null: innocent, never seen
  SiteRecord& FindOrInsert(u64 pc, u64 phys);  // reference stays valid
  // For reports: every record in use.
  std::vector<const SiteRecord*> All() const;
  u32 size() const { return size_; }
  void ForgetPage(u64 phys_page);  // code was replaced: its sites start innocent again

 private:
  std::vector<SiteRecord> records_;
  SiteRecord overflow_;
  u32 mask_;
  u32 size_ = 0;
};

}  // namespace alibi::adapt

#endif  // ALIBI_ADAPT_SITE_TABLE_H_
