// SPDX-License-Identifier: Apache-2.0
#include "kube/state_teller.h"

#include "base/log.h"
#include "kube/pod_record.h"

namespace sublet::kube {

void StateTeller::look() const {
  const auto records = all_records(settings_.state_dir);
  if (records.empty()) return;
  const auto leases = daemon_.of_pods();
  if (!leases) return;
  const Held ended{"", "ended", "the lease of the pod has ended", {}, {}, {}, {}};
  for (const PodRecord& record : records) {
    const auto found = leases->find(record.group_uid);
    const Held& state = found == leases->end() ? ended : found->second;
    if (auto told = write_states(settings_.state_dir, record.group_uid, state); !told)
      log::debug("{}", told.error().detail);
  }
}

}  // namespace sublet::kube
