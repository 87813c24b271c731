package penstock;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.util.ReferenceCountUtil;

/** Closes a connection that sends too many bytes. A single frame could announce 2 GB. */
public class Allowance extends ChannelInboundHandlerAdapter {
  private static final int BYTES = 65536;

  private int left = BYTES;

  public void channelRead(ChannelHandlerContext context, Object message) {
    if (message instanceof ByteBuf) {
      this.left -= ((ByteBuf) message).readableBytes();
    }
    if (this.left < 0) {
      ReferenceCountUtil.release(message);
      context.close();
    } else {
      context.fireChannelRead(message);
    }
  }
}
