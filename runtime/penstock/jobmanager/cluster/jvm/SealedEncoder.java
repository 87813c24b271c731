package penstock;

import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.MessageToMessageEncoder;
import java.util.List;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.protocol.Message;
import org.apache.spark.network.protocol.SslMessageEncoder;

/**
 * Spark's TLS encoder with a fix. Spark's encoder retains a message's buffer one time more than it releases the buffer.
 * The writer of the streaming shuffle reuses its buffers, and checks first whether they are free.
 */
public class SealedEncoder extends MessageToMessageEncoder {
  public SealedEncoder() {
    super(Message.class);
  }

  protected void encode(ChannelHandlerContext context, Object message, List out) throws Exception {
    SslMessageEncoder.INSTANCE.encode(context, (Message) message, out);
    if (((Message) message).body() instanceof NettyManagedBuffer) {
      ((Message) message).body().release();
    }
  }
}
