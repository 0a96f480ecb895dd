#include "spill/segment_mappings.h"

#include <utility>

#include "base/text.h"
#include "os/memfd.h"

namespace entrepot {

Result<BlobBytes> SegmentMappings::at(const BlobLocation& place) {
  const auto match = mapped_.find(place.segment);
  if (match == mapped_.end() || match->second.generation != place.segment_generation) {
    ASSIGN_OR_RETURN(const UniqueFd fd, open_(place.segment, place.segment_generation));
    ASSIGN_OR_RETURN(const std::uint64_t bytes, os::file_bytes(fd.get()));
    ASSIGN_OR_RETURN(os::Mapping mapping,
                     os::Mapping::map(fd.get(), 0, bytes, os::Access::kReadWrite, os::kHugePageBytes));
    mapped_[place.segment] = {place.segment_generation, std::make_shared<const os::Mapping>(std::move(mapping))};
  }
  const std::shared_ptr<const os::Mapping>& memory = mapped_[place.segment].memory;
  if (place.offset > memory->bytes() || place.length > memory->bytes() - place.offset) {
    return Status(Code::kInternal, concat(place.length, " bytes at ", place.offset, " are not in segment ",
                                          place.segment, " of ", memory->bytes()));
  }
  return BlobBytes{memory, memory->data() + place.offset};
}

}  // namespace entrepot
