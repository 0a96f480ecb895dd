#include "os/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/scratch.h"

namespace entrepot::os {
namespace {

using entrepot::testing::Scratch;

TEST(Files, PrivateFolderIsMadeWithParents) {
  const Scratch scratch;
  const std::string path = scratch.path("a/b/c");
  ASSERT_TRUE(ensure_private_folder(path).is_ok());
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  EXPECT_TRUE(ensure_private_folder(path).is_ok());
  EXPECT_TRUE(ensure_private_folder(path + "/").is_ok());
  EXPECT_TRUE(check_folder_safe(path).is_ok());
}

TEST(Files, FoldersThatOthersMayWriteAreRefused) {
  const Scratch scratch;
  const std::string path = scratch.path("open");
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0770), 0);
  const Status status = ensure_private_folder(path);
  EXPECT_EQ(status.code(), Code::kAccessDenied);
  EXPECT_NE(status.message().find("0770"), std::string::npos) << status.message();
  EXPECT_EQ(check_folder_safe(path).code(), Code::kAccessDenied);
  ASSERT_EQ(::chmod(path.c_str(), 01777), 0);
  EXPECT_TRUE(check_folder_safe(path).is_ok());  // sticky bit: other users cannot replace our files
  EXPECT_EQ(ensure_private_folder(path).code(), Code::kAccessDenied);
}

TEST(Files, LinksAndFilesInPlaceOfTheFolderAreRefused) {
  const Scratch scratch;
  ASSERT_TRUE(ensure_private_folder(scratch.path("real")).is_ok());
  ASSERT_EQ(::symlink(scratch.path("real").c_str(), scratch.path("link").c_str()), 0);
  EXPECT_EQ(ensure_private_folder(scratch.path("link")).code(), Code::kAccessDenied);
  scratch.write("file", "x");
  EXPECT_EQ(ensure_private_folder(scratch.path("file")).code(), Code::kAccessDenied);
  EXPECT_EQ(ensure_private_folder(scratch.path("file/below")).code(), Code::kInvalidArgument);
  EXPECT_EQ(ensure_private_folder("").code(), Code::kInvalidArgument);
}

TEST(Files, FoldersOfOtherUsersAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const Scratch scratch;
  const std::string path = scratch.path("theirs");
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  const Status status = ensure_private_folder(path);
  EXPECT_EQ(status.code(), Code::kAccessDenied);
  EXPECT_NE(status.message().find("12345"), std::string::npos);
  EXPECT_EQ(check_folder_safe(path).code(), Code::kAccessDenied);
}

TEST(Files, ReadAndRemove) {
  const Scratch scratch;
  scratch.write("file", std::string(10'000, 'x'));
  EXPECT_EQ(read_file(scratch.path("file"))->size(), 10'000U);
  EXPECT_EQ(read_file(scratch.path("file"), 5000)->size(), 5000U);
  EXPECT_TRUE(file_exists(scratch.path("file")));
  EXPECT_TRUE(remove_file(scratch.path("file")).is_ok());
  EXPECT_TRUE(remove_file(scratch.path("file")).is_ok());
  EXPECT_FALSE(file_exists(scratch.path("file")));
  EXPECT_EQ(read_file(scratch.path("file")).code(), Code::kStoreUnavailable);
}

TEST(Files, FolderOf) {
  EXPECT_EQ(folder_of("/a/b"), "/a");
  EXPECT_EQ(folder_of("/a/b/"), "/a");
  EXPECT_EQ(folder_of("/a"), "/");
  EXPECT_EQ(folder_of("/"), "/");
  EXPECT_EQ(folder_of("a"), ".");
  EXPECT_EQ(folder_of("a//b"), "a");
}

}  // namespace
}  // namespace entrepot::os
