package io.entrepot.pipes.agent;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import net.bytebuddy.jar.asm.Label;
import net.bytebuddy.jar.asm.MethodVisitor;
import net.bytebuddy.jar.asm.Opcodes;

/** Collects the jumps of a method, and then finds the instructions of {@link Unwinding}. */
final class MethodFlow extends MethodVisitor {
    private final Consumer<BitSet> result;
    private final Map<Label, Integer> places = new HashMap<>();
    private final Map<Integer, List<Label>> jumps = new HashMap<>();
    private final BitSet instructions = new BitSet();
    private final BitSet leaves = new BitSet(); // instructions after which the next one is not reached
    private final BitSet returns = new BitSet();
    private final BitSet throwing = new BitSet();
    private int current;
    private boolean handles;

    MethodFlow(Consumer<BitSet> result) {
        super(Opcodes.ASM9);
        this.result = result;
    }

    void at(int offset) {
        current = offset;
        instructions.set(offset);
    }

    @Override
    public void visitTryCatchBlock(Label start, Label end, Label handler, String type) {
        handles = true;
    }

    @Override
    public void visitLabel(Label label) {
        places.put(label, current);
    }

    @Override
    public void visitInsn(int opcode) {
        if (opcode == Opcodes.ATHROW) {
            throwing.set(current);
            leaves.set(current);
        } else if (opcode >= Opcodes.IRETURN && opcode <= Opcodes.RETURN) {
            returns.set(current);
            leaves.set(current);
        }
    }

    @Override
    public void visitJumpInsn(int opcode, Label target) {
        jump(List.of(target));
        if (opcode == Opcodes.GOTO) {
            leaves.set(current);
        }
    }

    @Override
    public void visitTableSwitchInsn(int min, int max, Label other, Label... targets) {
        branch(other, targets);
    }

    @Override
    public void visitLookupSwitchInsn(Label other, int[] keys, Label[] targets) {
        branch(other, targets);
    }

    private void branch(Label other, Label[] targets) {
        List<Label> all = new ArrayList<>(List.of(targets));
        all.add(other);
        jump(all);
        leaves.set(current);
    }

    private void jump(List<Label> targets) {
        jumps.put(current, targets);
    }

    @Override
    public void visitEnd() {
        if (!handles || throwing.isEmpty()) {
            return;
        }
        BitSet ordinary = closure(List.of(0), this::next);
        Map<Integer, List<Integer>> before = new HashMap<>();
        instructions.stream().forEach(place -> {
            for (int follower : next(place)) {
                before.computeIfAbsent(follower, key -> new ArrayList<>()).add(place);
            }
        });
        BitSet unwinding = leadingTo(throwing, before);
        unwinding.andNot(leadingTo(returns, before));
        unwinding.andNot(ordinary);
        if (!unwinding.isEmpty()) {
            result.accept(unwinding);
        }
    }

    private static BitSet leadingTo(BitSet ends, Map<Integer, List<Integer>> before) {
        List<Integer> starts = new ArrayList<>();
        ends.stream().forEach(starts::add);
        return closure(starts, place -> before.getOrDefault(place, List.of()));
    }

    private List<Integer> next(int place) {
        List<Integer> followers = new ArrayList<>();
        for (Label target : jumps.getOrDefault(place, List.of())) {
            followers.add(places.get(target));
        }
        int following = instructions.nextSetBit(place + 1);
        if (!leaves.get(place) && following >= 0) {
            followers.add(following);
        }
        return followers;
    }

    private static BitSet closure(List<Integer> starts, IntFunction<List<Integer>> next) {
        BitSet reached = new BitSet();
        Deque<Integer> left = new ArrayDeque<>(starts);
        while (!left.isEmpty()) {
            int place = left.pop();
            if (!reached.get(place)) {
                reached.set(place);
                left.addAll(next.apply(place));
            }
        }
        return reached;
    }
}
