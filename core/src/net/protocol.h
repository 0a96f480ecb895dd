// The local socket protocol between client and daemon, version 1. docs/formats/socket-protocol.md is its prose.
//
// A unix stream socket. Every frame is a FrameHeader and a body; descriptors travel by SCM_RIGHTS with the first byte
// of their frame. The client numbers its requests; the daemon answers each exactly once (kReply or kError) with the
// same number, not necessarily in order: what waits is answered when it is done. FrameHeader and Hello/HelloReply never
// change their first fields, so that any two versions can tell each other which they are.
#pragma once

#include "net/frame.h"
#include "net/greeting.h"
#include "net/object_messages.h"
#include "net/session_messages.h"
