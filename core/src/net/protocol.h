// Local socket protocol between client and daemon, version 1; specified in docs/formats/socket-protocol.md.
//
// A Unix stream socket. Every frame is a FrameHeader and a body; descriptors are sent by SCM_RIGHTS with the first byte
// of their frame. The client numbers its requests; the daemon answers each exactly once (kReply or kError) with the
// same number, not necessarily in order: a request that has to wait is answered when it is done. The first fields of
// FrameHeader and Hello/HelloReply never change, so that any two versions can identify each other.
#pragma once

#include "net/frame.h"
#include "net/gateway_messages.h"
#include "net/handshake.h"
#include "net/object_messages.h"
#include "net/session_messages.h"
#include "net/stream_messages.h"
