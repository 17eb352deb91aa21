#include <lockstep/checkpointing/snapshot/write/save_job.h>
#include <lockstep/checkpointing/snapshot/write/writer.h>

namespace lockstep::snapshot {

SaveReport Writer::save(const Content& content, const SnapshotId& id,
                        const std::optional<MetricValue>& metric) {
  SaveJob job(folder_, content, id, metric);
  job.write();
  if (job.agree()) {
    job.commit();
  }
  SaveReport report = job.finish();
  if (report.error) {
    throw Error(*report.error, report.code);
  }
  return report;
}

}  // namespace lockstep::snapshot
